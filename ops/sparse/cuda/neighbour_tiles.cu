// neighbour_tiles: SparseConv in IEEE float32. Kernel: neighbour_fma.cuh; configuration: neighbour_plan.cpp.

#include "ops/core/sum_tolerance.h"
#include "ops/sparse/cuda/neighbour_fma.cuh"
#include "ops/sparse/cuda/neighbour_kernel.cuh"

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
  NeighbourFunction function(SparseArithmetic, const NeighbourPlan& plan, bool aligned) const override {
    return aligned ? cut<true>(plan) : cut<false>(plan);
  }
  template <bool aligned>
  static NeighbourFunction cut(const NeighbourPlan& plan) {
    if (plan.terms != 2 || plan.width != 16 || 32 * plan.warps > most_fma_threads) return nullptr;
    return plan.pieces == 2 ? neighbour_fma<2, 4, aligned> : plan.pieces == 4 ? neighbour_fma<4, 2, aligned> : nullptr;
  }
};

}  // namespace

const Kernel& sparse_conv_neighbour_tiles() {
  static const NeighbourTiles kernel;
  return kernel;
}

}  // namespace lenslet::cuda
