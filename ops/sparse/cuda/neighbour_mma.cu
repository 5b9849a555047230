// neighbour_mma: SparseConv on tensor cores, for 16-bit types and for float32 as TF32 if requested. Kernel:
// neighbour_mma.cuh; configuration: neighbour_plan.cpp.

#include "ops/core/sum_tolerance.h"
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

class NeighbourMma final : public NeighbourKernel {
 public:
  std::string_view name() const override { return "neighbour_mma"; }
  DTypeSet types() const override { return dtypes<Types<float, Float16, BFloat16>>; }

 private:
  std::optional<std::string> refuse_numerics(const Problem& node, const Target& target) const override {
    const DType dtype = node.outputs()[0].dtype;
    if (!types().contains(dtype)) return "it multiplies " + types().str();
    if (dtype == DType::f32 && target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (target.device.capability < 80) return "it needs tensor cores of compute capability 8.0";
    return std::nullopt;
  }
  SparseArithmetic arithmetic_of(const Problem& node) const override {
    const DType dtype = node.outputs()[0].dtype;
    return dtype == DType::f32   ? SparseArithmetic::tf32
           : dtype == DType::f16 ? SparseArithmetic::fp16
                                 : SparseArithmetic::bf16;
  }
  double tolerance(SparseArithmetic arithmetic, std::int64_t terms) const override {
    if (arithmetic == SparseArithmetic::tf32) return tf32_sum_tolerance(terms) + sum_tolerance(terms);
    return half_sum_tolerance(arithmetic == SparseArithmetic::fp16 ? DType::f16 : DType::bf16, terms);
  }
  NeighbourFunction function(SparseArithmetic arithmetic, const NeighbourPlan& plan, bool aligned) const override {
    return arithmetic == SparseArithmetic::tf32   ? of_type<float>(plan, aligned)
           : arithmetic == SparseArithmetic::fp16 ? of_type<Float16>(plan, aligned)
                                                  : of_type<BFloat16>(plan, aligned);
  }
};

}  // namespace

const Kernel& sparse_conv_neighbour_mma() {
  static const NeighbourMma kernel;
  return kernel;
}

}  // namespace lenslet::cuda
