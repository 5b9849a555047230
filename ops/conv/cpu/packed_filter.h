#pragma once
// Filters as the right side of a matrix product: what im2col and direct_packed prepare, and their common figures.

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/gemm/gemm.h"

namespace lenslet {

/// For each group, B [R*S*C/groups][K/groups] packed for gemm(); rows in the order r, s, c.
class PackedFilter final : public PreparedFilter {
 public:
  PackedFilter(const ConvProblem& problem, const ConvFilter& filter);
  std::size_t bytes() const override;
  const float* group(std::int64_t g) const { return packed_.get() + g * group_floats_; }

  /// Where the parts of a filter's window lie in an NHWC input, as GemmRows has them: R runs of S*C when the taps of a
  /// line are adjacent, else R*S runs of C/groups.
  std::vector<std::int64_t> segments;

 private:
  std::int64_t group_floats_ = 0, floats_ = 0;
  std::unique_ptr<float[], void (*)(float*)> packed_;
};

/// The product that one group's filters make of `rows` rows: everything set but the rows of A.
/// Output pixels from `first` on.
Gemm group_product(const ConvRun& run, const PackedFilter& filter, std::int64_t group, std::int64_t first,
                   std::int64_t rows);

/// Bound for a sum of C/groups*R*S fp32 products, in whatever order: each rounding is about 2^-24 of a partial sum that
/// grows to the output's rms, and roundings are independent, so the error's rms is about 2^-24 * sqrt(terms) / 2 of it;
/// the worst of up to 1e7 outputs lies 5.3 deviations out, and an output of small rms (residual or bias cancel) or an
/// activation steeper than 1 costs a factor. Factor 8 in all, beside 16 roundings for bias, residual and activation.
double packed_tolerance(const ConvProblem& problem);

/// Time of gemm() in us for `groups` products [m,k]x[k,n], fitted to measurements (docs/conv-choice.md); `segments`:
/// runs that a row of A is cut into.
double gemm_estimate_us(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t segments, std::int64_t groups,
                        const MachineRates& rates);

}  // namespace lenslet
