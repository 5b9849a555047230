// Matrix products on the CPU: gemm() with B packed, beforehand where it is known.

#include <utility>

#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/problem.h"

namespace lenslet {
namespace {

/// `scratch` (k * n floats) is used where anything is to be scaled.
void pack_scaled(const MatrixProblem& p, const float* b, float* scratch, float* packed) {
  const std::int64_t rows = p.trans_b ? p.gemm_n : p.gemm_k, cols = p.trans_b ? p.gemm_k : p.gemm_n;  // as B lies
  if (p.scales()) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) scratch[i * cols + j] = p.scaled(b[i * cols + j], p.trans_b ? i : j);
    b = scratch;
  }
  pack_b(b, p.trans_b ? 1 : cols, p.trans_b ? cols : 1, p.gemm_k, p.gemm_n, packed);
}

class BoundPacked final : public BoundKernel {
 public:
  explicit BoundPacked(MatrixProblem problem)
      : p_(std::move(problem)), runs_(product_runs(p_)), packed_floats_(packed_b_floats(p_.gemm_k, p_.gemm_n)) {
    const auto piece = [&](bool wanted, std::int64_t floats) {
      const std::int64_t at = workspace_floats_;
      if (wanted) workspace_floats_ += (floats + 15) / 16 * 16;
      return at;
    };
    bias_ = piece(one_row_of_c(), p_.gemm_n);
    rows_ = piece(p_.trans_a, p_.a_floats());
    packed_ = piece(!p_.b_known, packed_floats_);
    scaled_ = piece(!p_.b_known && p_.scales(), p_.b_floats());
  }

  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(workspace_floats_) * sizeof(float); }

  void run(const KernelRun& run) const override {
    auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
    const float* const c = p_.c ? run.in<float>(MatrixOp::c) : nullptr;
    Gemm call{.m = p_.gemm_m,
              .n = p_.gemm_n,
              .k = p_.gemm_k,
              .a = {.stride = p_.gemm_k},
              .ldc = p_.gemm_n,
              .activation = p_.activation};
    if (one_row_of_c()) {
      for (std::int64_t j = 0; j < p_.gemm_n; ++j) workspace[bias_ + j] = p_.beta * c[j * p_.c_col];
      call.bias = workspace + bias_;
    }
    std::int64_t last_packed = -1;
    for (const ProductRun& products : runs_)
      for (std::int64_t i = 0; i < products.count; ++i) {
        const std::int64_t b = products.b + i * products.b_step;
        call.a.base = run.in<float>(MatrixOp::a) + (products.a + i * products.a_step) * p_.a_floats();
        if (p_.trans_a) call.a.base = transposed(call.a.base, workspace + rows_);
        if (!p_.b_known && b != std::exchange(last_packed, b))
          pack_scaled(p_, run.in<float>(MatrixOp::b) + b * p_.b_floats(), workspace + scaled_, workspace + packed_);
        call.b = p_.b_known ? reinterpret_cast<const float*>(run.blob) + b * packed_floats_ : workspace + packed_;
        call.c = run.out<float>() + (products.y + i) * p_.y_floats();
        if (p_.c && !one_row_of_c()) {
          for (std::int64_t row = 0; row < p_.gemm_m; ++row)
            for (std::int64_t j = 0; j < p_.gemm_n; ++j)
              call.c[row * p_.gemm_n + j] = p_.beta * c[row * p_.c_row + j * p_.c_col];
          call.residual = call.c;
        }
        gemm(call, *run.pool);
      }
  }

 private:
  /// C is added as gemm()'s bias. Otherwise it is spread over y first.
  bool one_row_of_c() const { return p_.c && p_.c_row == 0; }
  const float* transposed(const float* a, float* rows) const {
    for (std::int64_t i = 0; i < p_.gemm_m; ++i)
      for (std::int64_t l = 0; l < p_.gemm_k; ++l) rows[i * p_.gemm_k + l] = a[l * p_.gemm_m + i];
    return rows;
  }

  const MatrixProblem p_;
  const std::vector<ProductRun> runs_;
  const std::int64_t packed_floats_;
  /// Pieces of the workspace, each on 64 bytes: floats before them, and in all.
  std::int64_t bias_ = 0, rows_ = 0, packed_ = 0, scaled_ = 0, workspace_floats_ = 0;
};

class PackedProduct final : public MatrixKernel {
 public:
  std::string_view name() const override { return "packed"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    ConfigReader(binding.candidate.config).finish();
    return std::make_unique<BoundPacked>(matrix_problem(binding.problem));
  }

 private:
  Offer plan(const Problem&, const MatrixProblem& p, const Target&) const override {
    Candidate candidate;
    candidate.workspace_bytes = BoundPacked(p).workspace_bytes();
    candidate.tolerance = sum_tolerance(p.gemm_k);
    return candidate;
  }
  std::int64_t weight_floats(const MatrixProblem& p) const override {
    return p.b_known ? packed_b_floats(p.gemm_k, p.gemm_n) : 0;
  }
  void write_weights(const MatrixProblem& p, const float* b, float* to) const override {
    std::vector<float> scratch(p.scales() ? static_cast<std::size_t>(p.b_floats()) : 0);
    pack_scaled(p, b, scratch.data(), to);
  }
};

}  // namespace

const Kernel& packed_product() {
  static const PackedProduct kernel;
  return kernel;
}

}  // namespace lenslet
