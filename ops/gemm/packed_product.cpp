// Matrix products on the CPU: gemm() with B packed, in advance if it is known.

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/core/config_text.h"
#include "ops/core/grain.h"
#include "ops/core/sum_tolerance.h"
#include "ops/core/transpose_block.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/problem.h"

namespace lenslet {
namespace {

/// Packs columns [begin, end) of B; `begin` starts a panel.
void pack_columns(const MatrixProblem& p, const float* b, std::int64_t begin, std::int64_t end, float* packed) {
  const std::int64_t row = p.trans_b ? 1 : p.gemm_n, col = p.trans_b ? p.gemm_k : 1;
  pack_b(b + begin * col, row, col, p.gemm_k, end - begin, packed + begin * p.gemm_k);
}

/// True if B is packed from copies of some columns, scaled or reordered.
bool packs_copies(const MatrixProblem& p) { return p.scales() || p.channels != 0; }
/// Columns per copy: there may not be memory for a second copy of all weights.
std::int64_t copied_columns(const MatrixProblem& p) { return std::min(p.gemm_n, 4 * gemm_tile_cols()); }

/// Uses `scratch` (k * copied_columns() floats) if packs_copies().
void pack_scaled(const MatrixProblem& p, const float* b, float* scratch, float* packed) {
  if (!packs_copies(p)) return pack_columns(p, b, 0, p.gemm_n, packed);
  const std::int64_t step = copied_columns(p), apart = p.rows_apart();
  for (std::int64_t begin = 0; begin < p.gemm_n; begin += step) {
    const std::int64_t columns = std::min(step, p.gemm_n - begin);
    const std::int64_t row = p.trans_b ? 1 : columns, col = p.trans_b ? p.gemm_k : 1;  // as B lies
    const auto copy = [&](std::int64_t l, std::int64_t from, std::int64_t j) {
      const std::int64_t of_b = begin + j;
      scratch[l * row + j * col] = p.scaled(b[p.trans_b ? of_b * p.gemm_k + from : from * p.gemm_n + of_b], of_b);
    };
    for (std::int64_t j = 0; p.trans_b && j < columns; ++j)
      for (std::int64_t l = 0, from = 0; l < p.gemm_k; ++l, from = p.next_row(from, apart)) copy(l, from, j);
    for (std::int64_t l = 0, from = 0; !p.trans_b && l < p.gemm_k; ++l, from = p.next_row(from, apart))
      for (std::int64_t j = 0; j < columns; ++j) copy(l, from, j);
    pack_b(scratch, row, col, p.gemm_k, columns, packed + begin * p.gemm_k);
  }
}

/// True if B is one panel that already has pack_b's layout.
bool lies_packed(const MatrixProblem& p) {
  return !p.trans_b && !packs_copies(p) && p.gemm_n <= gemm_tile_cols() && packed_b_floats(1, p.gemm_n) == p.gemm_n;
}

/// Many products are distributed over the threads; few are split by gemm().
class BoundPacked final : public BoundKernel {
 public:
  BoundPacked(MatrixProblem problem, int threads)
      : p_(std::move(problem)), runs_(product_runs(p_)), packed_floats_(packed_b_floats(p_.gemm_k, p_.gemm_n)) {
    for (const ProductRun& run : runs_) products_ += run.count;
    apart_ = threads > 1 && products_ >= 4 * threads;
    // While A stays in a cache, a few panels of B at a time are packed and multiplied there.
    const std::int64_t panel = gemm_tile_cols(), panels = (p_.gemm_n + panel - 1) / panel;
    if (!p_.b_known && !p_.scales() && !apart_ && p_.a_floats() <= cached_floats && panels >= 2 * threads)
      group_ = panel * std::clamp<std::int64_t>(cached_floats / (p_.gemm_k * panel + 1), 1, panels / (2 * threads) + 1);
    bias_floats_ = one_row_of_c() ? lines(p_.gemm_n) : 0;
    const auto piece = [&](bool wanted, std::int64_t floats) {
      return std::exchange(own_floats_, own_floats_ + (wanted ? lines(floats) : 0));
    };
    rows_ = piece(p_.trans_a, p_.a_floats());
    packed_ = piece(!b_lies_ready_, group_ == 0 ? packed_floats_ : threads * group_floats());
    scaled_ = piece(!p_.b_known && p_.scales(), p_.gemm_k * copied_columns(p_));
    workspace_floats_ = bias_floats_ + own_floats_ * (apart_ ? threads : 1);
  }

  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(workspace_floats_) * sizeof(float); }

  void run(const KernelRun& run) const override {
    auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
    if (one_row_of_c()) {
      const auto c = run.inputs[MatrixOp::c].values<float>();
      for (std::int64_t j = 0; j < p_.gemm_n; ++j) workspace[j] = p_.beta * c[static_cast<std::size_t>(j * p_.c_col)];
    }
    if (!apart_) return multiply(run, 0, products_, workspace + bias_floats_);
    const double flops = 2.0 * static_cast<double>(p_.y_floats()) * static_cast<double>(p_.gemm_k);
    const auto grain = static_cast<std::int64_t>(1 + 2e5 / (flops + 1));
    run.pool->parallel_for(products_, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
      multiply(run, begin, end, workspace + worker * own_floats_);  // products with C are one
    });
  }

 private:
  static constexpr std::int64_t cached_floats = 32 << 10;

  static std::int64_t lines(std::int64_t floats) { return (floats + 15) / 16 * 16; }
  std::int64_t group_floats() const { return lines(packed_b_floats(p_.gemm_k, group_)); }
  /// True if C is added as gemm()'s bias. Otherwise it is first spread over y.
  bool one_row_of_c() const { return p_.c && p_.c_row == 0; }

  /// Products [begin, end) in the order of the result.
  void multiply(const KernelRun& run, std::int64_t begin, std::int64_t end, float* own) const {
    Gemm call{.m = p_.gemm_m,
              .n = p_.gemm_n,
              .k = p_.gemm_k,
              .a = {.stride = p_.gemm_k},
              .ldc = p_.gemm_n,
              .bias = one_row_of_c() ? reinterpret_cast<const float*>(run.workspace.data()) : nullptr,
              .activation = p_.activation};
    std::int64_t last_packed = -1, passed = 0;
    for (const ProductRun& products : runs_) {
      for (std::int64_t i = std::max<std::int64_t>(0, begin - passed); i < std::min(products.count, end - passed);
           ++i) {
        const std::int64_t b = products.b + i * products.b_step;
        call.a.base = run.in<float>(MatrixOp::a) + (products.a + i * products.a_step) * p_.a_floats();
        if (p_.trans_a) call.a.base = transposed(call.a.base, own + rows_, *run.pool);
        if (!b_lies_ready_ && group_ == 0 && b != std::exchange(last_packed, b)) pack(run, b, own);
        call.b = p_.b_known      ? reinterpret_cast<const float*>(run.blob) + b * packed_floats_
                 : b_lies_ready_ ? run.in<float>(MatrixOp::b) + b * p_.b_floats()
                                 : own + packed_;
        call.c = run.out<float>() + (products.y + i) * p_.y_floats();
        if (p_.c && !one_row_of_c()) call.residual = spread_c(run.in<float>(MatrixOp::c), call.c, *run.pool);
        if (apart_)
          gemm_serial(call);
        else if (group_ != 0)
          multiply_groups(run, b, call, own + packed_);
        else
          gemm(call, *run.pool);
      }
      passed += products.count;
    }
  }

  void pack(const KernelRun& run, std::int64_t matrix, float* own) const {
    const float* const b = run.in<float>(MatrixOp::b) + matrix * p_.b_floats();
    if (apart_ || p_.scales()) return pack_scaled(p_, b, own + scaled_, own + packed_);
    const std::int64_t panel = gemm_tile_cols(), panels = (p_.gemm_n + panel - 1) / panel;
    run.pool->parallel_for(panels, std::max<std::int64_t>(1, elementwise_grain / (p_.gemm_k * panel + 1)),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             pack_columns(p_, b, begin * panel, std::min(end * panel, p_.gemm_n), own + packed_);
                           });
  }

  /// Each thread packs its own panels of B and multiplies them.
  void multiply_groups(const KernelRun& run, std::int64_t matrix, const Gemm& whole, float* packed) const {
    const float* const b = run.in<float>(MatrixOp::b) + matrix * p_.b_floats();
    const std::int64_t groups = (p_.gemm_n + group_ - 1) / group_;
    const double flops = 2.0 * static_cast<double>(p_.gemm_m * group_) * static_cast<double>(p_.gemm_k);
    const auto grain = static_cast<std::int64_t>(1 + 2e5 / (flops + 1));
    run.pool->parallel_for(groups, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const own = packed + worker * group_floats();
      for (std::int64_t j = begin * group_; j < std::min(end * group_, p_.gemm_n); j += group_) {
        Gemm call = whole;
        call.n = std::min(group_, p_.gemm_n - j);
        const std::int64_t row = p_.trans_b ? 1 : p_.gemm_n, col = p_.trans_b ? p_.gemm_k : 1;
        pack_b(b + j * col, row, col, p_.gemm_k, call.n, own);
        call.b = own;
        call.c += j;
        if (call.bias != nullptr) call.bias += j;
        if (call.residual != nullptr) call.residual += j;
        gemm_serial(call);
      }
    });
  }

  /// Runs f on parts of a product's rows: in all threads, or in the calling one if products are distributed.
  template <typename F>
  void over_rows(ThreadPool& pool, std::int64_t floats_a_row, const F& f) const {
    if (apart_) return f(0, p_.gemm_m, 0);
    pool.parallel_for(p_.gemm_m, 1 + elementwise_grain / (floats_a_row + 1), f);
  }

  /// beta * C with the rows of y: C itself, or written to y.
  const float* spread_c(const float* c, float* y, ThreadPool& pool) const {
    if (p_.beta == 1 && p_.c_col == 1 && p_.c_row == p_.gemm_n) return c;
    over_rows(pool, p_.gemm_n, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) {
        float* const to = y + row * p_.gemm_n;
        const float* const from = c + row * p_.c_row;
        if (p_.c_col == 0)
          std::fill(to, to + p_.gemm_n, p_.beta * *from);
        else
          for (std::int64_t j = 0; j < p_.gemm_n; ++j) to[j] = p_.beta * from[j * p_.c_col];
      }
    });
    return y;
  }

  const float* transposed(const float* a, float* rows, ThreadPool& pool) const {
    over_rows(pool, p_.gemm_k, [&](std::int64_t begin, std::int64_t end, int) {
      constexpr std::int64_t block = 16;  // whole cache lines of what is read, and of what is written
      for (std::int64_t i = begin; i < end; i += block)
        for (std::int64_t l = 0; l < p_.gemm_k; l += block)
          transpose_block(sizeof(float), a + l * p_.gemm_m + i, p_.gemm_m, rows + i * p_.gemm_k + l, p_.gemm_k,
                          std::min(block, p_.gemm_k - l), std::min(block, end - i));
    });
    return rows;
  }

  const MatrixProblem p_;
  const std::vector<ProductRun> runs_;
  const std::int64_t packed_floats_;
  const bool b_lies_ready_ = p_.b_known || lies_packed(p_);  ///< nothing is packed in a run
  std::int64_t products_ = 0;
  bool apart_ = false;
  std::int64_t group_ = 0;  ///< columns that are packed and multiplied at a time; 0: all are packed first
  /// Workspace sizes and offsets: C's row, then per thread its parts, each 64-byte aligned.
  std::int64_t bias_floats_ = 0, rows_ = 0, packed_ = 0, scaled_ = 0, own_floats_ = 0, workspace_floats_ = 0;
};

class PackedProduct final : public MatrixKernel {
 public:
  std::string_view name() const override { return "packed"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    ConfigReader(binding.candidate.config).finish();
    return std::make_unique<BoundPacked>(matrix_problem(binding.problem), binding.threads());
  }

 private:
  Offer plan(const Problem&, const MatrixProblem& p, const Target& target) const override {
    Candidate candidate;
    candidate.workspace_bytes = BoundPacked(p, target.device.units).workspace_bytes();
    candidate.tolerance = sum_tolerance(p.gemm_k);
    return candidate;
  }
  Weights weights(const Problem&, const MatrixProblem& p, std::string_view) const override {
    const std::int64_t floats = p.b_known ? packed_b_floats(p.gemm_k, p.gemm_n) : 0;
    return {to_string(DType::f32), floats * static_cast<std::int64_t>(sizeof(float))};
  }
  void write_weights(const Problem&, const MatrixProblem& p, std::string_view, const float* b,
                     std::byte* to) const override {
    std::vector<float> scratch(packs_copies(p) ? static_cast<std::size_t>(p.gemm_k * copied_columns(p)) : 0);
    pack_scaled(p, b, scratch.data(), reinterpret_cast<float*>(to));
  }
};

}  // namespace

const Kernel& packed_product() {
  static const PackedProduct kernel;
  return kernel;
}

}  // namespace lenslet
