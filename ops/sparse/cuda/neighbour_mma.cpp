// neighbour_mma: numerics. Kernel: neighbour_mma.cuh.

#include <optional>
#include <string>

#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"
#include "ops/sparse/cuda/neighbour_kernel.h"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {
namespace {

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
  std::unique_ptr<const BoundKernel> launch(const NeighbourLaunch& of) const override {
    if constexpr (cuda_built)
      return bind_neighbour_mma(of);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& sparse_conv_neighbour_mma() {
  static const NeighbourMma kernel;
  return kernel;
}

}  // namespace lenslet::cuda
