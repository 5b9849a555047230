// GEMM without columns: it reads each output pixel's window in place. In padded NHWC, line r of a window is S*C
// consecutive floats: a row of the (never built) column matrix is R such runs.

#include "ops/conv/cpu/packed_filter.h"

namespace lenslet {
namespace {

class BoundDirectPacked final : public BoundRowConv {
 public:
  explicit BoundDirectPacked(const ConvProblem& p) : BoundRowConv(p), filter_(p), segments_(window_segments(p)) {}

 private:
  void compute(const ConvRun& run) const override {
    const ConvProblem& p = problem;
    for (std::int64_t g = 0; g < p.groups; ++g) {
      Gemm call = group_product(p, run, filter_, g, 0, p.n * p.p * p.q);
      call.a = windows(p, run.x<float>() + g * p.group_c());
      set_segments(call);
      gemm(call, *run.pool);
    }
  }

  void compute_rows(const ConvRun& run, const ImageRows& rows) const override {
    for (std::int64_t g = 0; g < problem.groups; ++g) {
      Gemm call = group_product(problem, run, filter_, g, rows);
      set_segments(call);
      gemm_serial(call);
    }
  }

  void set_segments(Gemm& call) const {
    call.a.segments = segments_.data();
    call.a.segment_count = static_cast<std::int64_t>(segments_.size());
  }

  PackedFilter filter_;
  std::vector<std::int64_t> segments_;
};

class DirectPacked final : public PackedConv {
 public:
  std::string_view name() const override { return "direct_packed"; }

 private:
  std::optional<std::string> refuse(const ConvProblem&, const Target&) const override { return std::nullopt; }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const bool adjacent = p.groups == 1 && p.dilation_w == 1;
    ConvCandidate candidate;
    candidate.explicit_padding = p.padded();
    candidate.pitched = true;
    candidate.tolerance = packed_tolerance(p);
    candidate.estimated_us = gemm_estimate_us(p.n * p.p * p.q, p.group_k(), p.group_c() * p.r * p.s,
                                              adjacent ? p.r : p.r * p.s, p.groups, target.device);
    return candidate;
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile&) const override {
    return std::make_unique<BoundDirectPacked>(p);
  }
};

}  // namespace

const Kernel& conv_direct_packed() {
  static const DirectPacked algorithm;
  return algorithm;
}

}  // namespace lenslet
