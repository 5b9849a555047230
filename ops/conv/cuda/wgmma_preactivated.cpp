// wgmma_preactivated: refusals, configurations, filters. Kernel: wgmma_preactivated.cuh.

#include "ops/conv/cuda/wgmma_preactivated.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "base/aligned_format.h"
#include "base/cuda/has_wgmma.h"
#include "base/cuda_built.h"
#include "ops/conv/cuda/wgmma_filters.h"
#include "ops/core/checks.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

using Op = PreactivatedConvOp;

PreactivatedProblem problem_of(const Problem& node) {
  PreactivatedProblem problem = node.as<Op>().problem(node.inputs());
  problem.conv.storage = problem.conv.x_storage = node.outputs()[0].dtype;
  return problem;
}

WgmmaFilters filters_of(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  return in_whole_tiles(p, plan.together, plan.n());
}

class Preactivated final : public Kernel {
 public:
  std::string_view name() const override { return "wgmma_preactivated"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<Float16, BFloat16>>; }

  Offer offer(const Problem& node, const Target& target) const override {
    const auto inputs = node.inputs();
    const DType dtype = node.outputs()[0].dtype;
    if (!types().contains(dtype) || inputs[Op::input].type.dtype != dtype)
      return Offer::refuse("it is not of 16 bits from end to end");
    if (!has_wgmma(target.device) || !target.device.clusters) return Offer::refuse(wgmma_refusal);
    for (const std::size_t i : {Op::scale, Op::shift, Op::filter, Op::bias})
      if (present(inputs, i) && inputs[i].constant == nullptr)
        return Offer::refuse("its scale, shift, filters or bias are computed by the network");
    const PreactivatedProblem problem = problem_of(node);
    if (!is_clamp(problem.activation.kind)) return Offer::refuse("its activation is no clamp");
    if (problem.conv.residual && (inputs[Op::residual].type.dtype != dtype || inputs[Op::residual].constant))
      return Offer::refuse("its residual is a constant, or of another type");
    if (auto why = refuse_wgmma_sizes(problem.conv, wgmma_step)) return Offer::refuse(*why);
    Offer offer;
    offer.candidates.push_back(
        candidate_of(node, problem.conv, preactivated_by_estimate(problem.conv).front(), target));
    return offer;
  }

  std::vector<Candidate> all_candidates(const Problem& node, const Target& target) const override {
    std::vector<Candidate> all;
    if (offer(node, target).candidates.empty()) return all;
    const ConvProblem p = problem_of(node).conv;
    for (const WgmmaGemmPlan& plan : preactivated_by_estimate(p)) all.push_back(candidate_of(node, p, plan, target));
    return all;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    const ConvProblem p = problem_of(node).conv;
    const WgmmaGemmPlan plan = read(p, candidate.config);
    BlobSpec spec;
    spec.bytes = preactivated_factors_at(p, plan) + factor_bytes(plan);
    spec.key = "preactivated " + filters_of(p, plan).form(p);
    const std::vector<float>& scale = node.as<Op>().conv().epilogue()->scale;
    spec.key.append(reinterpret_cast<const char*>(scale.data()), scale.size() * sizeof(float));
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const override {
    const ConvProblem p = problem_of(node).conv;
    const WgmmaGemmPlan plan = read(p, candidate.config);
    const std::vector<float>& scale = node.as<Op>().conv().epilogue()->scale;
    const auto constant = [&](std::size_t i) { return node.inputs()[i].constant->values<float>(); };
    const ConvFilter filter{
        .w = constant(Op::filter).data(), .scale = scale.empty() ? nullptr : scale.data(), .gemm_k = p.c};
    const std::size_t factors_at = preactivated_factors_at(p, plan);
    filters_of(p, plan).write(p, filter, blob.first(factors_at));
    auto* const factors = reinterpret_cast<float*>(blob.data() + factors_at);
    for (std::int64_t c = 0; c < plan.steps * wgmma_step; ++c)
      for (const auto& [input, at] : {std::pair(Op::scale, 0), std::pair(Op::shift, 2)})
        factors[c / 2 * 4 + at + c % 2] = c < p.c ? constant(input)[static_cast<std::size_t>(c)] : 0;
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    const PreactivatedProblem problem = problem_of(binding.problem);
    const WgmmaGemmPlan plan = read(problem.conv, binding.candidate.config);
    if constexpr (cuda_built)
      return bind_wgmma_preactivated(problem, plan);
    else
      return not_built();
  }

 private:
  static std::vector<WgmmaGemmPlan> preactivated_by_estimate(const ConvProblem& p) {
    return by_estimate(preactivated_tilings(p),
                       [&](const auto& plan) { return wgmma_plan_us(p, plan, reference_gpu()); });
  }
  static WgmmaGemmPlan read(const ConvProblem& p, std::string_view config) {
    return find_tiling(preactivated_tilings(p), config);
  }
  static std::size_t factor_bytes(const WgmmaGemmPlan& plan) {
    return static_cast<std::size_t>(plan.steps) * wgmma_step * 2 * sizeof(float);
  }

  static Candidate candidate_of(const Problem& node, const ConvProblem& p, const WgmmaGemmPlan& plan,
                                const Target& target) {
    Candidate candidate;
    candidate.config = plan.str();
    candidate.inputs.assign(node.inputs().size(), formats::nchw);
    candidate.inputs[Op::input] = aligned_nhwc(p.c, p.storage);
    candidate.outputs = {aligned_nhwc(p.k, p.storage)};
    if (p.residual) candidate.inputs[Op::residual] = candidate.outputs[0];
    candidate.estimated_us = wgmma_plan_us(p, plan, target.device);
    candidate.tolerance = half_sum_tolerance(p.storage, p.c);
    candidate.pitched_inputs = input_bit(Op::input);
    candidate.pitched_output = true;
    candidate.in_place = input_bit(Op::residual);
    candidate.reads = input_bit(Op::input) | input_bit(Op::bias) | input_bit(Op::residual);
    return candidate;
  }
};

}  // namespace

std::vector<WgmmaGemmPlan> preactivated_tilings(const ConvProblem& p) {
  std::vector<WgmmaGemmPlan> tilings;
  for (const WgmmaTile tile : {WgmmaTile::t128x128, WgmmaTile::t192x128, WgmmaTile::t128x64, WgmmaTile::t192x64})
    tilings.push_back(tile_wgmma(p, tile));
  return tilings;
}

std::size_t preactivated_factors_at(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  const auto bytes = static_cast<std::size_t>(filters_of(p, plan).elements(p)) * dtype_bytes(p.storage);
  return (bytes + 15) / 16 * 16;
}

const Kernel& preactivated_conv() {
  static const Preactivated kernel;
  return kernel;
}

}  // namespace lenslet::cuda
