#pragma once
// Filters as the B operand of a GEMM: packing and common estimates of im2col and direct_packed.

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/gemm/gemm.h"

namespace lenslet {

/// For each group, B [R*S*C/groups][K/groups] packed for gemm(), rows ordered r, s, c; or R*S separate B
/// [C/groups][K/groups], one a tap. Each begins on its own cache line.
class PackedFilter {
 public:
  explicit PackedFilter(const ConvProblem& problem, std::int64_t parts = 1);
  std::int64_t floats() const { return part_floats_ * parts_ * groups_; }
  /// The packing depends on the CPU's vector length.
  std::string form() const;
  void pack(const ConvProblem& problem, const ConvFilter& filter, float* to) const;
  /// Packing in independent pieces; each needs its own scratch_floats().
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

/// Offsets of a window's contiguous parts in an NHWC input, for GemmRows: R runs of S*C if taps of a line are adjacent,
/// else R*S runs of C/groups.
std::vector<std::int64_t> window_segments(const ConvProblem& problem);

/// The GEMM of one group for `rows` output pixels from `first` on; the rows of A are left to set.
Gemm group_product(const ConvProblem& problem, const ConvRun& run, const PackedFilter& filter, std::int64_t group,
                   std::int64_t first, std::int64_t rows);

/// The same for some rows of one image, rows of A set to windows in an x without pads; segments are not clipped.
Gemm group_product(const ConvProblem& problem, const ConvRun& run, const PackedFilter& filter, std::int64_t group,
                   const ImageRows& rows);
/// Window origins of all outputs in an x without pads.
GemmRows windows(const ConvProblem& problem, const float* x);

/// Shared by im2col and direct_packed.
class PackedConv : public ConvAlgorithm {
 public:
  DeviceKind device() const override { return DeviceKind::cpu; }

 protected:
  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    const PackedFilter filter(p);
    return {.elements = filter.floats(), .form = filter.form()};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& from,
                 std::span<std::byte> bytes) const override {
    PackedFilter(p).pack(p, from, as_floats(bytes).data());
  }
  ComputedFilters computed_filters() const override { return ComputedFilters::packed; }
  std::size_t packing_bytes(const ConvProblem& p, int threads) const override {
    return static_cast<std::size_t>(threads * PackedFilter::scratch_floats(p)) * sizeof(float);
  }
  void pack(const ConvProblem& p, const ConvRun& run, std::span<std::byte> to, std::byte* scratch) const override;
};

/// sum_tolerance of C/groups*R*S products.
double packed_tolerance(const ConvProblem& problem);

/// Time of gemm() in us for `groups` products [m,k]x[k,n], fitted to measurements (docs/conv-choice.md); `segments`:
/// contiguous runs of a row of A.
double gemm_estimate_us(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t segments, std::int64_t groups,
                        const DeviceProfile& rates);

}  // namespace lenslet
