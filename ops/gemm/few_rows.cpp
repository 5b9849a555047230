// Matrix products with few rows on the CPU that read B in place, without packing: a transposed B, as in fully connected
// layers, or one that the network computes. A product with a single column is computed as one with a single row. The
// inner loops are in dot_rows.cpp.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/dot_rows.h"

namespace lenslet {
namespace {

bool is_column(const MatrixProblem& p) { return p.gemm_n == 1 && p.gemm_m > most_dot_rows; }

/// y = A b, rewritten as y^T = b^T A^T.
MatrixProblem as_row(MatrixProblem p) {
  std::swap(p.gemm_m, p.gemm_n);
  std::swap(p.c_row, p.c_col);
  for (const float factor : std::exchange(p.scale, {})) p.alpha *= factor;
  p.trans_b = true;
  return p;
}

class BoundFewRows final : public BoundKernel {
 public:
  explicit BoundFewRows(MatrixProblem problem) : column_(is_column(problem)), p_(std::move(problem)) {
    if (column_) p_ = as_row(std::move(p_));
  }

  void run(const KernelRun& run) const override {
    if (p_.y.elems() == 0) return;
    const DotRows call{.problem = p_,
                       .a = run.in<float>(column_ ? MatrixOp::b : MatrixOp::a),
                       .b = run.in<float>(column_ ? MatrixOp::a : MatrixOp::b),
                       .c = run.in<float>(MatrixOp::c),
                       .y = run.out<float>()};
    // A piece must be worth its hand-over, and is a whole number of the kernel's tiles.
    constexpr std::int64_t floats_a_piece = 64 << 10;
    const std::int64_t tile = p_.trans_b ? 8 : 64;
    const std::int64_t tiles = (p_.gemm_n + tile - 1) / tile;
    run.pool->parallel_for(tiles, 1 + floats_a_piece / (tile * p_.gemm_k + 1),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             dot_rows(call, begin * tile, std::min(end * tile, p_.gemm_n));
                           });
  }

 private:
  bool column_;
  MatrixProblem p_;
};

/// Packing a known B costs memory and time before the first run (VGG-16: 494 MB) and pays only if B fits a cache: from
/// memory both are equally fast (VGG-16's 4096x4096 on an EPYC, in place and packed: one core 1.75 and 1.71 ms, two
/// 1.27 and 1.36; ResNet-50's 8 MB 0.27 and 0.21 ms).
constexpr std::int64_t least_known_floats = std::int64_t{4} << 20;

class FewRows final : public MatrixKernel {
 public:
  std::string_view name() const override { return "few_rows"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    ConfigReader(binding.candidate.config).finish();
    return std::make_unique<BoundFewRows>(matrix_problem(binding.problem));
  }

 private:
  Offer plan(const Problem&, const MatrixProblem& p, const Target&) const override {
    if (p.batch.elems() != 1) return Offer::refuse("more than one product");
    if (p.trans_a) return Offer::refuse("A lies transposed");
    const std::int64_t most = p.trans_b ? most_dot_rows : most_dot_rows_of_columns;
    if (p.gemm_m > most && !is_column(p)) return Offer::refuse(fmt::format("more than {} rows", most));
    if (p.b_known && !p.trans_b && !is_column(p)) return Offer::refuse("B is known, and not rows for rows of A");
    if (p.b_known && !is_column(p) && p.b_floats() < least_known_floats)
      return Offer::refuse(
          fmt::format("B has less than {} MiB: packed, it comes from a cache", least_known_floats >> 18));
    Candidate candidate;
    candidate.tolerance = sum_tolerance(p.gemm_k);
    return candidate;
  }
  Weights weights(const Problem&, const MatrixProblem&, std::string_view) const override { return {}; }
  void write_weights(const Problem&, const MatrixProblem&, std::string_view, const float*, std::byte*) const override {}
};

}  // namespace

const Kernel& few_rows_product() {
  static const FewRows kernel;
  return kernel;
}

}  // namespace lenslet
