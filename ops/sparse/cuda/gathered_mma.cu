// gathered_mma: SparseConv on tensor cores, of 16-bit numbers, and of float32 as TF32 where it is asked for. The kernel
// is in gathered_tiles.cuh, what a warp multiplies in mma_tile.cuh.

#include "ops/core/sum_tolerance.h"
#include "ops/sparse/cuda/gathered_kernel.cuh"
#include "ops/sparse/cuda/mma_tile.cuh"

namespace lenslet::cuda {
namespace {

template <int columns>
using Tf32Tile = MmaTile<float, columns>;
template <int columns>
using Fp16Tile = MmaTile<Float16, columns>;
template <int columns>
using Bf16Tile = MmaTile<BFloat16, columns>;

class GatheredMma final : public GatheredKernel {
 public:
  std::string_view name() const override { return "gathered_mma"; }
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
  GatheredFunction function(SparseArithmetic arithmetic, int columns) const override {
    switch (arithmetic) {
      case SparseArithmetic::tf32:
        return gathered_function<Tf32Tile>(columns);
      case SparseArithmetic::fp16:
        return gathered_function<Fp16Tile>(columns);
      default:
        return gathered_function<Bf16Tile>(columns);
    }
  }
};

}  // namespace

const Kernel& sparse_conv_gathered_mma() {
  static const GatheredMma kernel;
  return kernel;
}

}  // namespace lenslet::cuda
