// No columns at all: the product reads each output pixel's window in place. In padded NHWC, line r of a window is a run
// of S*C consecutive floats, so that a row of the (never built) column matrix is R such runs.

#include "ops/conv/cpu/algorithms.h"
#include "ops/conv/cpu/packed_filter.h"

namespace lenslet {
namespace {

class DirectPacked final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "direct_packed"; }
  Format format() const override { return formats::nhwc; }
  bool wants_padded() const override { return true; }

  std::optional<std::string> refuse(const ConvProblem&) const override { return std::nullopt; }

  double tolerance(const ConvProblem& problem) const override { return packed_tolerance(problem); }

  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override {
    const bool adjacent = p.groups == 1 && p.dilation_w == 1;
    double us = gemm_estimate_us(p.n * p.p * p.q, p.group_k(), p.group_c() * p.r * p.s, adjacent ? p.r : p.r * p.s,
                                 p.groups, rates);
    if (p.padded()) {  // the Pad step reads and writes the input once; a small one stays in the caches
      const ConvProblem padded = p.with_explicit_padding();
      const double bytes = 4.0 * static_cast<double>(p.n * p.c) * static_cast<double>(p.h * p.w + padded.h * padded.w);
      us += bytes / (bytes < rates.l2_bytes ? 3 * rates.bytes_per_us : rates.bytes_per_us) + pad_step_us;
    }
    return us;
  }

  std::size_t workspace_bytes(const ConvProblem&, int) const override { return 0; }

  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& problem, const ConvFilter& filter) const override {
    return std::make_unique<PackedFilter>(problem, filter);
  }

  void run(const ConvRun& run) const override {
    const ConvProblem& p = run.problem;
    const auto& filter = static_cast<const PackedFilter&>(*run.filter);
    for (std::int64_t g = 0; g < p.groups; ++g) {
      Gemm call = group_product(run, filter, g, 0, p.n * p.p * p.q);
      call.a.base = run.x + g * p.group_c();
      call.a.stride = p.stride_w * p.c;
      call.a.width = p.q;
      call.a.line_stride = p.stride_h * p.w * p.c;
      call.a.height = p.p;
      call.a.image_stride = p.h * p.w * p.c;
      call.a.segments = filter.segments.data();
      call.a.segment_count = static_cast<std::int64_t>(filter.segments.size());
      gemm(call, *run.pool);
    }
  }

 private:
  /// A step of its own costs its start and join.
  static constexpr double pad_step_us = 2;
};

}  // namespace

const ConvAlgorithm& conv_direct_packed() {
  static const DirectPacked algorithm;
  return algorithm;
}

}  // namespace lenslet
