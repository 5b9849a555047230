// gathered_tiles: SparseConv in IEEE float32. Kernel: gathered_tiles.cuh; a warp's products: fma_tile.cuh;
// configuration: gathered_plan.cpp.

#include <algorithm>
#include <string>
#include <utility>

#include "base/cuda/vector.cuh"
#include "ops/core/sum_tolerance.h"
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

class GatheredTiles final : public Kernel {
 public:
  std::string_view name() const override { return "gathered_tiles"; }
  DTypeSet types() const override { return dtypes<Types<float>>; }
  DeviceKind device() const override { return DeviceKind::cuda; }

  Offer offer(const Problem& node, const Target& target) const override {
    if (node.outputs()[0].dtype != DType::f32) return Offer::refuse("it multiplies float32");
    if (auto why = refuse_types(node, DType::f32)) return Offer::refuse(std::move(*why));
    const SparseConvProblem p = problem_of(node);
    if (!p.weights_known) return Offer::refuse("its filters are computed by the network");
    if (auto why = refuse_sizes(p, node)) return Offer::refuse(std::move(*why));
    const GatheredPlan plan = plan_gathered(p, target.device);
    if (plan.tiles_n(p) > 65535) return Offer::refuse("more than 65535 tiles of filters");
    if (auto why = target.device.refuse_shared(plan.shared_bytes(p.taps, gathered_units(p))))
      return Offer::refuse(std::move(*why));
    Candidate candidate = prepared_candidate(node, p, plan.str());
    candidate.workspace_bytes = plan.workspace_bytes(p);
    candidate.estimated_us = gathered_us(p, plan, target.device);
    candidate.tolerance = sum_tolerance(p.channels * p.taps);
    return candidate;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    const SparseConvProblem p = problem_of(node);
    const GatheredPlan plan = read_gathered_plan(p, candidate.config);
    BlobSpec spec;
    spec.bytes = gathered_filter_bytes(p, plan);
    spec.key = prepared_key(node.as<SparseConvOp>(), "columns=" + std::to_string(plan.columns));
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const override {
    const SparseConvProblem p = problem_of(node);
    pack_gathered_filters(node.as<SparseConvOp>(), p,
                          node.inputs()[SparseConvOp::filter].constant->values<float>().data(),
                          read_gathered_plan(p, candidate.config), blob);
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    const SparseConvProblem p = problem_of(binding.problem);
    const GatheredPlan plan = read_gathered_plan(p, binding.candidate.config);
    return std::make_unique<BoundGathered>(p, binding.shape(SparseConvOp::rulebook)[0], plan,
                                           gathered_function(plan.columns));
  }

 private:
  static SparseConvProblem problem_of(const Problem& node) { return node.as<SparseConvOp>().problem(node.inputs()); }
};

}  // namespace

const Kernel& sparse_conv_gathered_tiles() {
  static const GatheredTiles kernel;
  return kernel;
}

}  // namespace lenslet::cuda
