#pragma once
// Filters as the right side of a matrix product: what im2col and direct_packed prepare, and their common figures.

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/gemm/gemm.h"

namespace lenslet {

/// For each group, B [R*S*C/groups][K/groups] packed for gemm(); rows in the order r, s, c. Or, in R*S parts, a B
/// [C/groups][K/groups] for each tap. Each begins on a cache line of its own.
class PackedFilter {
 public:
  explicit PackedFilter(const ConvProblem& problem, std::int64_t parts = 1);
  std::int64_t floats() const { return part_floats_ * parts_ * groups_; }
  /// What gemm() reads differs with the CPU's vectors.
  std::string form() const;
  void pack(const ConvProblem& problem, const ConvFilter& filter, float* to) const;
  /// The same in pieces, whose order does not matter; each needs scratch_floats() of its own.
  std::int64_t pieces(const ConvProblem& problem) const;
  static std::int64_t scratch_floats(const ConvProblem& problem);
  void pack_piece(const ConvProblem& problem, const ConvFilter& filter, std::int64_t piece, float* to,
                  float* scratch) const;
  const float* group(const float* packed, std::int64_t g, std::int64_t part = 0) const {
    return packed + (g * parts_ + part) * part_floats_;
  }

 private:
  std::int64_t parts_, part_floats_, groups_;
};

/// Where the parts of a filter's window lie in an NHWC input, as GemmRows has them: R runs of S*C when the taps of a
/// line are adjacent, else R*S runs of C/groups.
std::vector<std::int64_t> window_segments(const ConvProblem& problem);

/// The product that one group's filters make of `rows` rows: everything set but the rows of A.
/// Output pixels from `first` on.
Gemm group_product(const ConvProblem& problem, const ConvRun& run, const PackedFilter& filter, std::int64_t group,
                   std::int64_t first, std::int64_t rows);

/// The same of some rows of one image: with the rows of A, which begin where each output's window does in an x without
/// pads; their segments are still whole.
Gemm group_product(const ConvProblem& problem, const ConvRun& run, const PackedFilter& filter, std::int64_t group,
                   const ImageRows& rows);
/// Where the windows of all outputs begin in an x without pads.
GemmRows windows(const ConvProblem& problem, const float* x);

/// What im2col and direct_packed have in common.
class PackedConv : public ConvAlgorithm {
 public:
  DeviceKind device() const override { return DeviceKind::cpu; }

 protected:
  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    const PackedFilter filter(p);
    return {.floats = filter.floats(), .form = filter.form()};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& from, std::span<float> to) const override {
    PackedFilter(p).pack(p, from, to.data());
  }
  ComputedFilters computed_filters() const override { return ComputedFilters::packed; }
  std::int64_t packing_floats(const ConvProblem& p, int threads) const override {
    return threads * PackedFilter::scratch_floats(p);
  }
  void pack(const ConvProblem& p, const ConvRun& run, std::span<float> to, float* scratch) const override;
};

/// sum_tolerance of C/groups*R*S products.
double packed_tolerance(const ConvProblem& problem);

/// Time of gemm() in us for `groups` products [m,k]x[k,n], fitted to measurements (docs/conv-choice.md); `segments`:
/// runs that a row of A is cut into.
double gemm_estimate_us(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t segments, std::int64_t groups,
                        const DeviceProfile& rates);

}  // namespace lenslet
