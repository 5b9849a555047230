// gathered_tiles: SparseConv in IEEE float32. Kernel: gathered_tiles.cuh; a warp's products: fma_tile.cuh;
// configuration: gathered_plan.cpp.

#include "base/cuda/vector.cuh"
#include "ops/sparse/cuda/fma_tile.cuh"
#include "ops/sparse/cuda/gathered_tiles.cuh"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {
namespace {

using GatheredFunction = void (*)(GatheredCall);

/// Kernels for 16, 32 and 64 filters, with four resident blocks of four warps.
GatheredFunction gathered_function(int columns) {
  return columns == 16   ? gathered_kernel<FmaTile<16>, 16, 4>
         : columns == 32 ? gathered_kernel<FmaTile<32>, 32, 4>
                         : gathered_kernel<FmaTile<64>, 64, 4>;
}

class BoundGathered final : public BoundKernel {
 public:
  BoundGathered(const SparseConvProblem& p, std::int64_t length, const GatheredPlan& plan, GatheredFunction function)
      : p_(p), plan_(plan), function_(function), call_(p, length, plan) {}

  std::size_t workspace_bytes() const override { return plan_.workspace_bytes(p_); }

  void run(const KernelRun& run) const override {
    GatheredCall call = call_;
    set_addresses(call, run);
    call.access = p_.channels % 4 == 0 && quad_aligned(call.x) ? 16 : 4;
    call.store_fours = p_.filters % 4 == 0 && quad_aligned(call.y, call.residual);
    auto* const begins = reinterpret_cast<int*>(run.workspace.data());
    call.begins = begins;
    call.done = begins + p_.taps * (call.blocks + 1);
    call.parts = reinterpret_cast<float4*>(run.workspace.data() + plan_.parts_offset(p_));
    find_block_pairs(*run.cuda, call.rulebook, plan_, call.blocks, plan_.counters(plan_.tiles_n(p_)), begins);
    const std::size_t shared_bytes = plan_.shared_bytes(p_.taps, call.units);
    allow_shared_bytes(function_, shared_bytes);
    launch(*run.cuda, function_,
           dim3(static_cast<unsigned>(plan_.grid_x(p_)), static_cast<unsigned>(plan_.tiles_n(p_))),
           static_cast<unsigned>(block_threads(plan_.columns)), shared_bytes, call);
  }
  std::string fault() const override { return rulebook_fault(p_); }

 private:
  SparseConvProblem p_;
  GatheredPlan plan_;
  GatheredFunction function_;
  GatheredCall call_;
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_gathered_tiles(const SparseConvProblem& p, std::int64_t length,
                                                       const GatheredPlan& plan) {
  return std::make_unique<BoundGathered>(p, length, plan, gathered_function(plan.columns));
}

}  // namespace lenslet::cuda
