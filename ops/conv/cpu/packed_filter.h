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

/// sum_tolerance of C/groups*R*S products.
double packed_tolerance(const ConvProblem& problem);

/// Time of gemm() in us for `groups` products [m,k]x[k,n], fitted to measurements (docs/conv-choice.md); `segments`:
/// runs that a row of A is cut into.
double gemm_estimate_us(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t segments, std::int64_t groups,
                        const MachineRates& rates);

}  // namespace lenslet
