// neighbour_mma: SparseConv on tensor cores, for 16-bit types and for float32 as TF32 if requested. Kernel:
// neighbour_mma.cuh; configuration: neighbour_plan.cpp.

#include "ops/sparse/cuda/neighbour_kernel.cuh"
#include "ops/sparse/cuda/neighbour_mma.cuh"

namespace lenslet::cuda {
namespace {

template <typename T, int width, int pieces>
NeighbourFunction of_terms(int terms, bool aligned) {
  if (!aligned) return terms == 1 && pieces == 1 ? neighbour_mma<T, width, 1, 1, 4, false> : nullptr;
  return terms == 1   ? neighbour_mma<T, width, pieces, 1, 4, true>
         : terms == 2 ? neighbour_mma<T, width, pieces, 2, 3, true>
         : terms == 4 ? neighbour_mma<T, width, pieces, 4, 2, true>
                      : nullptr;
}
template <typename T>
NeighbourFunction of_type(const NeighbourPlan& plan, bool aligned) {
  if (32 * plan.warps > most_threads(plan.pieces, plan.terms)) return nullptr;
  if (plan.width == 16 && plan.pieces == 1) return of_terms<T, 16, 1>(plan.terms, aligned);
  if (plan.width == 32 && plan.pieces == 1) return of_terms<T, 32, 1>(plan.terms, aligned);
  if (plan.width == 16 && plan.pieces == 2) return of_terms<T, 16, 2>(plan.terms, aligned);
  if (plan.width == 32 && plan.pieces == 2) return of_terms<T, 32, 2>(plan.terms, aligned);
  return nullptr;
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_neighbour_mma(const NeighbourLaunch& of) {
  return bound_neighbours(of, of.arithmetic == SparseArithmetic::tf32   ? of_type<float>(of.plan, of.aligned())
                              : of.arithmetic == SparseArithmetic::fp16 ? of_type<Float16>(of.plan, of.aligned())
                                                                        : of_type<BFloat16>(of.plan, of.aligned()));
}

}  // namespace lenslet::cuda
