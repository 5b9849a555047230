// neighbour_tiles: SparseConv in IEEE float32. Kernel: neighbour_fma.cuh; configuration: neighbour_plan.cpp.

#include "ops/sparse/cuda/neighbour_fma.cuh"
#include "ops/sparse/cuda/neighbour_kernel.cuh"

namespace lenslet::cuda {
namespace {

template <bool aligned>
NeighbourFunction instance(const NeighbourPlan& plan) {
  if (plan.terms != 2 || plan.width != 16 || 32 * plan.warps > most_fma_threads) return nullptr;
  return plan.pieces == 2 ? neighbour_fma<2, 4, aligned> : plan.pieces == 4 ? neighbour_fma<4, 2, aligned> : nullptr;
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_neighbour_tiles(const NeighbourLaunch& of) {
  return bound_neighbours(of, of.aligned() ? instance<true>(of.plan) : instance<false>(of.plan));
}

}  // namespace lenslet::cuda
