// gathered_tiles: SparseConv in IEEE float32. The kernel is in gathered_tiles.cuh, what a warp multiplies in
// fma_tile.cuh; rows and filters of a block are chosen in gathered_plan.cpp.

#include "ops/core/sum_tolerance.h"
#include "ops/sparse/cuda/fma_tile.cuh"
#include "ops/sparse/cuda/gathered_kernel.cuh"

namespace lenslet::cuda {
namespace {

class GatheredTiles final : public GatheredKernel {
 public:
  std::string_view name() const override { return "gathered_tiles"; }
  DTypeSet types() const override { return dtypes<Types<float>>; }

 private:
  std::optional<std::string> refuse_numerics(const Problem& node, const Target&) const override {
    if (node.outputs()[0].dtype != DType::f32) return "it multiplies float32";
    return std::nullopt;
  }
  SparseArithmetic arithmetic_of(const Problem&) const override { return SparseArithmetic::fma; }
  double tolerance(SparseArithmetic, std::int64_t terms) const override { return sum_tolerance(terms); }
  GatheredFunction function(SparseArithmetic, int columns) const override {
    return gathered_function<FmaTile>(columns);
  }
};

}  // namespace

const Kernel& sparse_conv_gathered_tiles() {
  static const GatheredTiles kernel;
  return kernel;
}

}  // namespace lenslet::cuda
