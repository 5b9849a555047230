// separable: refusals and filters. Launch: separable.cu.

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <type_traits>

#include "base/aligned_format.h"
#include "base/convert.h"
#include "base/tf32.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/separable_plan.h"
#include "ops/core/checks.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

class Separable final : public Kernel {
 public:
  std::string_view name() const override { return "separable"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<float, Float16, BFloat16>>; }

  Offer offer(const Problem& node, const Target& target) const override {
    using Op = SeparableConvOp;
    const auto inputs = node.inputs();
    const DType dtype = node.outputs()[0].dtype;
    if (!types().contains(dtype) || inputs[Op::input].type.dtype != dtype)
      return Offer::refuse("it is not of 16 bits, or float32, from end to end");
    if (dtype == DType::f32 && target.numerics.multiply != Numerics::Multiply::tf32)
      return Offer::refuse("products of float32 are asked for as they are");
    const SeparableProblem problem = problem_of(node);
    if (auto why = refuse(problem)) return Offer::refuse(*why);
    for (const std::size_t i : {Op::depthwise_filter, Op::depthwise_bias, Op::filter, Op::bias})
      if (present(inputs, i) && inputs[i].constant == nullptr)
        return Offer::refuse("its filters or biases are computed by the network");
    if (problem.pointwise.residual && (inputs[Op::residual].type.dtype != dtype || inputs[Op::residual].constant))
      return Offer::refuse("its residual is a constant, or of another type");
    const std::optional<SeparableTiling> planned = plan_separable(problem, target.device);
    if (!planned) return Offer::refuse("its filters exceed shared memory");

    return candidate_of(node, problem, *planned, target);
  }

  std::vector<Candidate> all_candidates(const Problem& node, const Target& target) const override {
    std::vector<Candidate> all = offer(node, target).candidates;
    if (all.empty()) return all;
    const SeparableProblem problem = problem_of(node);
    for (const SeparableTiling& tiling : separable_by_estimate(problem, target.device))
      if (tiling.str() != all.front().config) all.push_back(candidate_of(node, problem, tiling, target));
    return all;
  }

  static Candidate candidate_of(const Problem& node, const SeparableProblem& problem, const SeparableTiling& tiling,
                                const Target& target) {
    using Op = SeparableConvOp;
    const DType dtype = node.outputs()[0].dtype;
    Candidate candidate;
    candidate.config = tiling.str();
    candidate.inputs.assign(node.inputs().size(), formats::nchw);
    candidate.inputs[Op::input] = aligned_nhwc(problem.depthwise.c, dtype);
    candidate.outputs = {aligned_nhwc(problem.pointwise.k, dtype)};
    if (problem.pointwise.residual) candidate.inputs[Op::residual] = candidate.outputs[0];
    candidate.estimated_us = estimate_separable_us(problem, tiling, target.device);
    candidate.tolerance = tolerance(problem);
    candidate.in_place = input_bit(Op::residual);
    candidate.pitched_output = !problem.pointwise.residual;
    candidate.reads = input_bit(Op::input) | input_bit(Op::residual);
    return candidate;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    const SeparableProblem problem = problem_of(node);
    const SeparableTiling tiling = read_separable_tiling(problem, candidate.config);
    const SeparableSizes sizes(problem);
    BlobSpec spec;
    spec.bytes = static_cast<std::size_t>(
        16 * (sizes.groups(tiling) * tiling.tiles * (32 * sizes.chunks + 2) + sizes.chunks * sizes.chunk_taps()));
    spec.key = std::string("separable ").append(to_string(problem.depthwise.storage)).append(" tiles=");
    spec.key.append(std::to_string(tiling.tiles));
    const auto& op = node.as<SeparableConvOp>();
    for (const ConvOp* half : {&op.depthwise(), &op.pointwise()}) {
      const std::vector<float>& scale = half->epilogue()->scale;
      spec.key.append(scale.empty() ? "|" : "|scaled ");
      spec.key.append(reinterpret_cast<const char*>(scale.data()), scale.size() * sizeof(float));
    }
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const override {
    using Op = SeparableConvOp;
    const SeparableProblem problem = problem_of(node);
    const SeparableTiling tiling = read_separable_tiling(problem, candidate.config);
    const SeparableSizes sizes(problem);
    const auto& op = node.as<Op>();
    const auto filter_of = [&](const ConvOp& half, std::size_t input, std::int64_t gemm_k) {
      const std::vector<float>& scale = half.epilogue()->scale;
      return ConvFilter{.w = node.inputs()[input].constant->values<float>().data(),
                        .scale = scale.empty() ? nullptr : scale.data(),
                        .gemm_k = gemm_k};
    };
    const ConvFilter depthwise = filter_of(op.depthwise(), Op::depthwise_filter, taps_of_size);
    const ConvFilter pointwise = filter_of(op.pointwise(), Op::filter, sizes.c);
    const auto bias_of = [&](std::size_t input, std::int64_t i) {
      const bool there = present(node.inputs(), input);
      const Tensor* const list = there ? node.inputs()[input].constant : nullptr;
      return list != nullptr && i < list->shape()[0] ? list->values<float>()[static_cast<std::size_t>(i)] : 0.0F;
    };
    dispatch(problem.depthwise.storage, Types<float, Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      constexpr bool floats = std::is_same_v<T, float>;
      const auto rounded = [](double value) {
        if constexpr (std::is_same_v<T, float>)
          return tf32_from_f64(value);
        else
          return narrowed<T>(value);
      };
      // Elements of a word, channels of a lane, and the adjacent filter tiles of a lane.
      constexpr std::int64_t word = 4 / sizeof(T), elems = 4 * word, set = elems / 2;
      T* element = reinterpret_cast<T*>(blob.data());
      for (std::int64_t group = 0; group < sizes.groups(tiling); ++group)
        for (std::int64_t step = 0; step < sizes.chunks * 2; ++step)
          for (std::int64_t pair = 0; pair < tiling.tiles / 2; ++pair)
            for (std::int64_t lane = 0; lane < 32; ++lane)
              for (std::int64_t i = 0; i < elems; ++i, ++element) {
                const std::int64_t tile = pair * 2 + i / (2 * word), column = lane / 4;
                const std::int64_t k = group * tiling.tiles * 8 + tile / set * (8 * set) + column / 2 * elems +
                                       tile % set * 2 + column % 2;
                const std::int64_t c =
                    step / 2 * sizes.chunk + lane % 4 * elems + step % 2 * (2 * word) + i % (2 * word);
                *element = rounded(k < sizes.k && c < sizes.c ? pointwise.exact_weight(k, c) : 0.0);
              }
      auto* to = reinterpret_cast<std::uint32_t*>(element);
      for (std::int64_t i = 0; i < sizes.chunks * 16 * word; ++i) {
        const std::int64_t n = i % (4 * word), j = i / (4 * word) % 4;
        const std::int64_t c = i / (16 * word) * sizes.chunk + n / word * elems + j * word + n % word;
        const auto weight = [&](std::int64_t tap) {
          return tap < taps_of_size && c < sizes.c ? depthwise.exact_weight(c, tap) : 0.0;
        };
        const float bias = c < sizes.c ? bias_of(Op::depthwise_bias, c) : 0.0F;
        if constexpr (floats) {
          for (std::int64_t tap = 0; tap < separable_taps<true>; ++tap)
            *to++ = std::bit_cast<std::uint32_t>(tap == taps_of_size ? bias : static_cast<float>(weight(tap)));
        } else {
          const auto pair = [&](T low, T high) { return low.bits | std::uint32_t{high.bits} << 16; };
          for (std::int64_t tap = 0; tap < 10; tap += 2) {
            const T one = rounded(weight(tap)), two = rounded(weight(tap + 1));
            *to++ = n % 2 == 0 ? pair(one, two) : pair(two, one);
          }
          // The sum of two numbers beyond the largest is a finite float that is clamped, not NaN.
          constexpr float most = std::is_same_v<T, Float16> ? 65504.0F : 3e38F;
          const T most_of_it = rounded(static_cast<double>(std::clamp(bias, -most, most)));
          const float rest = bias - widened(most_of_it);
          *to++ = pair(most_of_it, rounded(static_cast<double>(std::clamp(rest, -most, most))));
          to = std::fill_n(to, separable_taps<false> - 6, 0U);
        }
      }
      for (std::int64_t k = 0; k < sizes.groups(tiling) * tiling.tiles * 8; ++k)
        *to++ = std::bit_cast<std::uint32_t>(bias_of(Op::bias, k));
    });
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    const SeparableProblem problem = problem_of(binding.problem);
    const SeparableTiling tiling = read_separable_tiling(problem, binding.candidate.config);
    if constexpr (cuda_built)
      return bind_separable(problem, tiling);
    else
      return not_built();
  }

 private:
  static SeparableProblem problem_of(const Problem& node) { return node.as<SeparableConvOp>().problem(node.inputs()); }

  static std::optional<std::string> refuse(const SeparableProblem& problem) {
    const ConvProblem &d = problem.depthwise, &p = problem.pointwise;
    if (d.r != 3 || d.s != 3) return "its depthwise filters are not 3x3";
    if (d.stride_h != d.stride_w || d.stride_h > 2) return "its stride is not 1 or 2";
    if (d.dilation_h != 1 || d.dilation_w != 1) return "it is dilated";
    if (d.n == 0) return "it has no images";
    ConvProblem of_y = p;
    of_y.k = aligned_channels(p.k, p.storage);
    ConvProblem of_x = d;
    of_x.c = of_x.k = of_x.groups = aligned_channels(d.c, d.storage);
    const auto elements = [](const ConvProblem& of) {
      const ConvProblem padded = of.with_explicit_padding();
      return static_cast<double>(padded.h * padded.w) * static_cast<double>(padded.c);
    };
    if (std::max(elements(of_x), elements(of_y)) > 0x1p30 ||
        static_cast<double>(d.n) * static_cast<double>(d.p * d.q) > 0x1p30)
      return "a tensor beyond 32-bit offsets";
    return std::nullopt;
  }

  /// 16 bits: half_sum_tolerance() with three roundings (taps, their sums, filters), together 0.73 roundoffs rms a
  /// product.
  static double tolerance(const SeparableProblem& problem) {
    const std::int64_t gemm_k = problem.pointwise.c + taps_of_size;
    if (problem.depthwise.storage == DType::f32) return tf32_sum_tolerance(gemm_k);
    return 11.7 * unit_roundoff(problem.depthwise.storage) + 2 * sum_tolerance(gemm_k);
  }
};

}  // namespace

const Kernel& separable_conv() {
  static const Separable kernel;
  return kernel;
}

}  // namespace lenslet::cuda
