#pragma once
// The host's half of gathered_tiles and gathered_mma: what they offer, prepare and launch.

#include <algorithm>
#include <string>
#include <utility>

#include "base/cuda/vector.cuh"
#include "ops/core/config_text.h"
#include "ops/sparse/cuda/gathered_tiles.cuh"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {

using GatheredFunction = void (*)(GatheredCall);

/// Kernels for 16, 32, 64 and 128 filters, as far as most_columns(). Of 128, two blocks of eight warps are resident, of
/// fewer four of four.
template <template <int> typename Tile>
GatheredFunction gathered_function(int columns) {
  if (columns == 16) return gathered_kernel<Tile<16>, 16, 4>;
  if (columns == 32) return gathered_kernel<Tile<32>, 32, 4>;
  if constexpr (most_columns(Tile<16>::arithmetic) == 128)
    if (columns == 128) return gathered_kernel<Tile<128>, 128, 2>;
  return gathered_kernel<Tile<64>, 64, 4>;
}

class BoundGathered final : public BoundKernel {
 public:
  BoundGathered(const SparseConvProblem& p, std::int64_t length, const GatheredPlan& plan, SparseArithmetic arithmetic,
                GatheredFunction function)
      : p_(p),
        plan_(plan),
        element_bytes_(element_bytes(arithmetic)),
        function_(function),
        call_(p, length, plan, arithmetic) {}

  std::size_t workspace_bytes() const override { return plan_.workspace_bytes(p_); }

  void run(const KernelRun& run) const override {
    GatheredCall call = call_;
    call.rulebook.values = run.in<std::int32_t>(SparseConvOp::rulebook);
    call.x = run.in<void>(SparseConvOp::input);
    call.residual = run.in<void>(SparseConvOp::residual);
    call.bias = run.in<float>(SparseConvOp::bias);
    call.y = run.out<void>();
    call.w = reinterpret_cast<const char*>(run.blob);
    call.fault = run.cuda->fault;
    const std::int64_t row_bytes = p_.channels * element_bytes_;
    call.access = row_bytes % 16 == 0 && quad_aligned(call.x) ? 16 : row_bytes % 4 == 0 ? 4 : 2;
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
  int element_bytes_;
  GatheredFunction function_;
  GatheredCall call_;
};

/// What is multiplied with what follows from the node and from what was asked for.
class GatheredKernel : public Kernel {
 public:
  DeviceKind device() const final { return DeviceKind::cuda; }

  Offer offer(const Problem& node, const Target& target) const final {
    if (auto why = refuse_numerics(node, target)) return Offer::refuse(std::move(*why));
    if (auto why = refuse_types(node, node.outputs()[0].dtype)) return Offer::refuse(std::move(*why));
    const SparseConvProblem p = problem_of(node);
    if (!p.weights_known) return Offer::refuse("its filters are computed by the network");
    if (auto why = refuse_sizes(p, node)) return Offer::refuse(std::move(*why));
    const SparseArithmetic arithmetic = arithmetic_of(node);
    const GatheredPlan plan = plan_gathered(p, arithmetic, target.device);
    if (plan.tiles_n(p) > 65535) return Offer::refuse("more than 65535 tiles of filters");
    if (auto why = target.device.refuse_shared(plan.shared_bytes(p.taps, gathered_units(p, arithmetic))))
      return Offer::refuse(std::move(*why));
    Candidate candidate;
    candidate.config = plan.str();
    candidate.inputs.resize(node.inputs().size());
    candidate.outputs.resize(1);
    candidate.workspace_bytes = plan.workspace_bytes(p);
    candidate.estimated_us = gathered_us(p, plan, arithmetic, target.device);
    candidate.tolerance = tolerance(arithmetic, p.channels * p.taps);
    candidate.in_place = p.residual ? input_bit(SparseConvOp::residual) : no_inputs;
    candidate.reads = all_inputs & ~input_bit(SparseConvOp::filter);
    return candidate;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const final {
    const SparseConvProblem p = problem_of(node);
    const auto scale = node.as<SparseConvOp>().scale();
    const GatheredPlan plan = read_gathered_plan(p, arithmetic_of(node), candidate.config);
    BlobSpec spec;
    spec.bytes = gathered_filter_bytes(p, plan, arithmetic_of(node));
    spec.key = std::string(to_string(node.outputs()[0].dtype)) + " columns=" + std::to_string(plan.columns) + " ";
    spec.key.append(reinterpret_cast<const char*>(scale.data()), scale.size() * sizeof(float));
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const final {
    const SparseConvProblem p = problem_of(node);
    pack_gathered_filters(node.as<SparseConvOp>(), p,
                          node.inputs()[SparseConvOp::filter].constant->values<float>().data(),
                          read_gathered_plan(p, arithmetic_of(node), candidate.config), arithmetic_of(node), blob);
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const final {
    const SparseConvProblem p = problem_of(binding.problem);
    const SparseArithmetic arithmetic = arithmetic_of(binding.problem);
    const GatheredPlan plan = read_gathered_plan(p, arithmetic, binding.candidate.config);
    return std::make_unique<BoundGathered>(p, binding.shape(SparseConvOp::rulebook)[0], plan, arithmetic,
                                           function(arithmetic, plan.columns));
  }

 private:
  static SparseConvProblem problem_of(const Problem& node) { return node.as<SparseConvOp>().problem(node.inputs()); }
  /// Why it would be less exact than asked for, or cannot be; or nothing.
  virtual std::optional<std::string> refuse_numerics(const Problem& node, const Target& target) const = 0;
  virtual SparseArithmetic arithmetic_of(const Problem& node) const = 0;
  virtual double tolerance(SparseArithmetic arithmetic, std::int64_t terms) const = 0;
  virtual GatheredFunction function(SparseArithmetic arithmetic, int columns) const = 0;
};

}  // namespace lenslet::cuda
