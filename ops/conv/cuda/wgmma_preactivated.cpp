// wgmma_preactivated and wgmma_layer_norm: refusals, configurations, prepared weights. Kernels: wgmma_preactivated.cuh,
// wgmma_layer_norm.cuh.

#include "ops/conv/cuda/wgmma_preactivated.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/aligned_format.h"
#include "base/cuda/has_wgmma.h"
#include "base/cuda_built.h"
#include "base/dtypes.h"
#include "ops/conv/cuda/wgmma_filters.h"
#include "ops/core/checks.h"
#include "ops/core/fused_clamp.h"
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
std::size_t biases(const WgmmaGemmPlan& plan) { return static_cast<std::size_t>(plan.tiles_n * plan.n()); }

/// H200, 30 November 2026 (ResNetV2-50, DenseNet-121, DeiT-S, Swin-T, CAFormer-S18 layer by layer).
struct Costs {
  double loading_us = 0.2;  ///< of a k-block mapped on its way to the products
  double moments_us = 0.4;  ///< of moments, behind the last k-block
  double row_us = 0.0006;   ///< of a tile's row in a k-block: its moments take longer than its products
};
constexpr Costs costs;

constexpr float infinity = std::numeric_limits<float>::infinity();
/// Least epsilon of a LayerNormalization in float32: the squares of smaller deviations leave its range.
constexpr double least_epsilon = 1e-20;

class PreactivatedKernel final : public Kernel {
 public:
  explicit PreactivatedKernel(bool normalises) : normalises_(normalises) {}
  std::string_view name() const override { return normalises_ ? "wgmma_layer_norm" : "wgmma_preactivated"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<Float16, BFloat16>>; }

  Offer offer(const Problem& node, const Target& target) const override {
    if (auto why = refusal(node, target)) return Offer::refuse(*why);
    Offer offer;
    offer.candidates.push_back(candidate_of(node, by_estimate_of(node).front(), target));
    return offer;
  }

  std::vector<Candidate> all_candidates(const Problem& node, const Target& target) const override {
    std::vector<Candidate> all;
    if (refusal(node, target)) return all;
    for (const WgmmaGemmPlan& plan : by_estimate_of(node)) all.push_back(candidate_of(node, plan, target));
    return all;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    const PreactivatedProblem problem = problem_of(node);
    const WgmmaGemmPlan plan = read(problem, candidate.config);
    BlobSpec spec;
    spec.bytes = preactivated_floats_at(problem.conv, plan) + floats(problem, plan) * sizeof(float);
    spec.key = std::string(name()) + " " + to_string(problem.activation) + " " +
               filters_of(problem.conv, plan).form(problem.conv);
    const auto add = [&](const auto* data, std::size_t count) {
      spec.key.append(reinterpret_cast<const char*>(data), count * sizeof *data);
    };
    add(&problem.epsilon, 1);
    const std::vector<float>& scale = node.as<Op>().conv().epilogue()->scale;
    add(scale.data(), scale.size());
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const override {
    const PreactivatedProblem problem = problem_of(node);
    const ConvProblem& p = problem.conv;
    const WgmmaGemmPlan plan = read(problem, candidate.config);
    const std::vector<float>& filter_scale = node.as<Op>().conv().epilogue()->scale;
    const auto constant = [&](std::size_t i) { return node.inputs()[i].constant->values<float>(); };
    const auto w = constant(Op::filter), scale = constant(Op::scale), shift = constant(Op::shift);
    const auto c_of = [&](std::size_t i) { return i % static_cast<std::size_t>(p.c); };
    std::vector<float> scaled(w.begin(), w.end());
    const float* const factor = filter_scale.empty() ? nullptr : filter_scale.data();
    int exponent = 0;
    if (normalises_) {
      double most = 0;
      for (std::size_t i = 0; i < scaled.size(); ++i) {
        scaled[i] *= scale[c_of(i)];
        const double of_filter = factor == nullptr ? 1 : static_cast<double>(factor[i / static_cast<std::size_t>(p.c)]);
        most = std::max(most, std::abs(static_cast<double>(scaled[i]) * of_filter));
      }
      if (most > 0 && std::isfinite(most)) exponent = -std::ilogb(most);
      for (float& value : scaled) value = std::ldexp(value, exponent);
    }
    const std::size_t floats_at = preactivated_floats_at(p, plan);
    filters_of(p, plan).write(p, {.w = scaled.data(), .scale = factor, .gemm_k = p.c}, blob.first(floats_at));

    const std::span<float> bias(reinterpret_cast<float*>(blob.data() + floats_at), floats(problem, plan));
    std::ranges::fill(bias, 0.0F);
    if (p.bias) std::ranges::copy(constant(Op::bias), bias.begin());
    const std::span<float> rest = bias.subspan(biases(plan));
    if (normalises_) {
      const ConvFilter exact{.w = w.data(), .scale = factor, .gemm_k = p.c};
      for (std::int64_t k = 0; k < p.k; ++k) {
        double shifted = 0;
        for (std::int64_t c = 0; c < p.c; ++c)
          shifted += exact.exact_weight(k, c) * static_cast<double>(shift[static_cast<std::size_t>(c)]);
        bias[static_cast<std::size_t>(k)] += static_cast<float>(shifted);
        rest[static_cast<std::size_t>(k)] = static_cast<float>(rounded_sum(p, blob, k));
      }
      rest[biases(plan)] = problem.epsilon;
      rest[biases(plan) + 1] = 1.0F / static_cast<float>(p.c);
      rest[biases(plan) + 2] = std::ldexp(1.0F, -exponent);
    } else {
      const FusedClamp limits(problem.activation);
      rest[0] = std::fmax(limits.low, -infinity), rest[1] = std::fmin(limits.high, infinity);  // NaN is no limit
      for (std::size_t c = 0; c < scale.size(); ++c) {
        float* const pair = rest.data() + preactivated_limits + c / 2 * 4 + c % 2;
        pair[0] = scale[c], pair[2] = shift[c];
      }
    }
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    const PreactivatedProblem problem = problem_of(binding.problem);
    const WgmmaGemmPlan plan = read(problem, binding.candidate.config);
    if constexpr (cuda_built)
      return normalises_ ? bind_wgmma_layer_norm(problem.conv, plan) : bind_wgmma_preactivated(problem.conv, plan);
    else
      return not_built();
  }

 private:
  std::optional<std::string> refusal(const Problem& node, const Target& target) const {
    const auto inputs = node.inputs();
    const DType dtype = node.outputs()[0].dtype;
    if (!types().contains(dtype) || inputs[Op::input].type.dtype != dtype)
      return "it is not of 16 bits from end to end";
    if (!has_wgmma(target.device) || !target.device.clusters) return wgmma_refusal;
    for (const std::size_t i : {Op::scale, Op::shift, Op::filter, Op::bias})
      if (present(inputs, i) && inputs[i].constant == nullptr)
        return "its scale, shift, filters or bias are computed by the network";
    const PreactivatedProblem problem = problem_of(node);
    const ConvProblem& p = problem.conv;
    if (problem.normalises() != normalises_)
      return normalises_ ? "it has no LayerNormalization" : "it has a LayerNormalization";
    if (!is_clamp(problem.activation.kind)) return "its activation is no clamp";
    if (normalises_) {
      if (problem.activation.kind != Activation::Kind::none) return "an activation behind the LayerNormalization";
      if (p.c % 8 != 0) return "its channels fill no vectors of 16 bytes";
      if (!is_pointwise(p)) return "a stride";
      if (p.residual) return "a residual";
      if (problem.epsilon < least_epsilon) return "an epsilon out of the range of float32's squares";
      if (preactivated_tilings(problem).empty()) return "more tiles than multiprocessors hold at once";
    }
    if (p.residual && (inputs[Op::residual].type.dtype != dtype || inputs[Op::residual].constant))
      return "its residual is a constant, or of another type";
    return refuse_wgmma_sizes(p, 32);
  }

  /// Sum of a filter's weights in the blob.
  static double rounded_sum(const ConvProblem& p, std::span<const std::byte> blob, std::int64_t k) {
    return dispatch(p.storage, Types<Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      const T* const row = reinterpret_cast<const T*>(blob.data()) + k * prepared_channels(p);
      double sum = 0;
      for (std::int64_t c = 0; c < p.c; ++c) sum += static_cast<double>(widened(row[c]));
      return sum;
    });
  }

  /// As wgmma_gemm's, and what x's loading or its moments take.
  static double plan_us(const ConvProblem& p, const WgmmaGemmPlan& plan, const DeviceProfile& device) {
    const double gemm_us = wgmma_plan_us(p, plan, device);
    if (plan.split_k > 0) {
      const auto rows = static_cast<double>(plan.steps * shape_of(plan.split_k_tile).m);
      return gemm_us + costs.moments_us + rows * costs.row_us;
    }
    const auto waves = static_cast<double>(ceil_div(plan.tiles_m * plan.tiles_n, device.units));
    return gemm_us + waves * static_cast<double>(plan.steps) * costs.loading_us;
  }
  static std::vector<WgmmaGemmPlan> by_estimate_of(const Problem& node) {
    const PreactivatedProblem problem = problem_of(node);
    return by_estimate(preactivated_tilings(problem),
                       [&](const auto& plan) { return plan_us(problem.conv, plan, reference_gpu()); });
  }
  static WgmmaGemmPlan read(const PreactivatedProblem& problem, std::string_view config) {
    return find_tiling(preactivated_tilings(problem), config);
  }
  static std::size_t floats(const PreactivatedProblem& problem, const WgmmaGemmPlan& plan) {
    const std::size_t more = problem.normalises()
                                 ? biases(plan) + 3
                                 : preactivated_limits + static_cast<std::size_t>(plan.steps) * wgmma_step * 2;
    return biases(plan) + more;
  }

  Candidate candidate_of(const Problem& node, const WgmmaGemmPlan& plan, const Target& target) const {
    const ConvProblem p = problem_of(node).conv;
    Candidate candidate;
    candidate.config = plan.str();
    candidate.inputs.assign(node.inputs().size(), formats::nchw);
    candidate.inputs[Op::input] = aligned_nhwc(p.c, p.storage);
    candidate.outputs = {aligned_nhwc(p.k, p.storage)};
    if (p.residual) candidate.inputs[Op::residual] = candidate.outputs[0];
    candidate.estimated_us = plan_us(p, plan, target.device);
    candidate.tolerance = half_sum_tolerance(p.storage, p.c);
    candidate.pitched_inputs = input_bit(Op::input);
    candidate.pitched_output = true;
    candidate.in_place = p.residual ? input_bit(Op::residual) : no_inputs;
    candidate.reads = input_bit(Op::input) | input_bit(Op::residual);
    return candidate;
  }

  bool normalises_;
};

}  // namespace

std::vector<WgmmaGemmPlan> preactivated_tilings(const PreactivatedProblem& problem) {
  std::vector<WgmmaGemmPlan> tilings;
  if (problem.normalises())
    for (const SplitKTile tile : {SplitKTile::t128x64, SplitKTile::t64x64, SplitKTile::t64x32}) {
      const WgmmaGemmPlan plan = tile_wgmma(problem.conv, tile, 1);
      if (plan.tiles_m * plan.tiles_n <= std::int64_t{reference_gpu().units} * shape_of(tile).blocks)
        tilings.push_back(plan);
    }
  else
    for (const WgmmaTile tile : {WgmmaTile::t128x128, WgmmaTile::t128x64, WgmmaTile::t192x64})
      tilings.push_back(tile_wgmma(problem.conv, tile));
  return tilings;
}

std::size_t preactivated_floats_at(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  const auto bytes = static_cast<std::size_t>(filters_of(p, plan).elements(p)) * dtype_bytes(p.storage);
  return (bytes + 15) / 16 * 16;
}

const Kernel& conv_wgmma_preactivated() {
  static const PreactivatedKernel kernel(false);
  return kernel;
}
const Kernel& conv_wgmma_layer_norm() {
  static const PreactivatedKernel kernel(true);
  return kernel;
}

}  // namespace lenslet::cuda
