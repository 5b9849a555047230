// neighbour_tiles: SparseConv in IEEE float32. The kernel is in neighbour_fma.cuh; how it is cut in neighbour_plan.cpp.

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
    return std::nullopt;
  }
  SparseArithmetic arithmetic_of(const Problem&) const override { return SparseArithmetic::fma; }
  double tolerance(SparseArithmetic, std::int64_t terms) const override { return sum_tolerance(terms); }
  NeighbourFunction function(SparseArithmetic, const NeighbourPlan& plan, bool aligned) const override {
    return aligned ? cut<true>(plan) : cut<false>(plan);
  }
  template <bool aligned>
  static NeighbourFunction cut(const NeighbourPlan& plan) {
    if (plan.terms != 2 || 32 * plan.warps > most_fma_threads(plan.width, plan.pieces)) return nullptr;
    if (plan.width == 16 && plan.pieces == 2) return neighbour_fma<16, 2, 4, aligned>;
    if (plan.width == 16 && plan.pieces == 4) return neighbour_fma<16, 4, 2, aligned>;
    if (plan.width == 32 && plan.pieces == 4) return neighbour_fma<32, 4, 3, aligned>;
    if (plan.width == 32 && plan.pieces == 8) return neighbour_fma<32, 8, 2, aligned>;
    if constexpr (aligned) {
      if (plan.width == 64 && plan.pieces == 4) return neighbour_fma<64, 4, 2, aligned>;
    }
    return nullptr;
  }
};

}  // namespace

const Kernel& sparse_conv_neighbour_tiles() {
  static const NeighbourTiles kernel;
  return kernel;
}

}  // namespace lenslet::cuda
