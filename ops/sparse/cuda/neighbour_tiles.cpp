// neighbour_tiles: numerics. Kernel: neighbour_fma.cuh.

#include <optional>
#include <string>

#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"
#include "ops/sparse/cuda/neighbour_kernel.h"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {
namespace {

class NeighbourTiles final : public NeighbourKernel {
 public:
  std::string_view name() const override { return "neighbour_tiles"; }
  DTypeSet types() const override { return dtypes<Types<float>>; }

 private:
  std::optional<std::string> refuse_numerics(const Problem& node, const Target&) const override {
    if (node.outputs()[0].dtype != DType::f32) return "it multiplies float32";
    const SparseConvProblem p = node.as<SparseConvOp>().problem(node.inputs());
    // 16 -> 32 took 0.92 to 1.15 of gathered_tiles' time on SECOND's scans, 64 -> 64 1.6 to 2.6 of it (H100).
    if (p.channels > 16 || p.filters > 16) return "more than 16 channels or filters: gathered_tiles takes less";
    return std::nullopt;
  }
  SparseArithmetic arithmetic_of(const Problem&) const override { return SparseArithmetic::fma; }
  double tolerance(SparseArithmetic, std::int64_t terms) const override { return sum_tolerance(terms); }
  std::unique_ptr<const BoundKernel> launch(const NeighbourLaunch& of) const override {
    if constexpr (cuda_built)
      return bind_neighbour_tiles(of);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& sparse_conv_neighbour_tiles() {
  static const NeighbourTiles kernel;
  return kernel;
}

}  // namespace lenslet::cuda
