// Matrix products on CUDA: which way they go, and the calls that make them. The kernels are in gemm.cu.

#include <fmt/format.h>

#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/gemm_cuda.h"

namespace lenslet {
namespace {

using Multiply = Numerics::Multiply;

// What a configuration says: "way=few_rows slices=4", "way=cublas tf32=no" or "way=tiled".
constexpr std::string_view few_rows = "few_rows", cublas = "cublas", tiled = "tiled";

/// Is the one matrix of B brought to [n,k] and scaled beforehand?
bool is_prepared(const MatrixProblem& p) {
  return p.b_known && p.b_floats() > 0 && p.batch_b.elems() == 1 && (!p.trans_b || p.scales());
}

bool has_few_rows(const MatrixProblem& p) {
  return p.batch.elems() == 1 && p.gemm_m <= cuda::most_few_rows && !p.trans_a && (p.trans_b || is_prepared(p));
}

class BoundProduct final : public BoundKernel {
 public:
  BoundProduct(const MatrixProblem& p, std::string_view config)
      : p_(p), prepared_(is_prepared(p)), runs_(product_runs(p)) {
    if (prepared_) {
      p_.trans_b = true;
      p_.alpha = 1;
    }
    ConfigReader reader(config);
    const std::string_view way = reader.word("way");
    if (way == few_rows && has_few_rows(p))
      slices_ = static_cast<int>(reader.integer("slices", 1, cuda::few_rows_warps));
    else if (way == cublas && p.gemm_k > 0)
      multiply_ = reader.flag("tf32") ? Multiply::tf32 : Multiply::fp32;
    else if (way != tiled)
      reader.refuse("no way for this product");
    reader.finish();
  }

  void run([[maybe_unused]] const KernelRun& run) const override {
    if constexpr (cuda_built) {
      const float* const b = prepared_ ? reinterpret_cast<const float*>(run.blob) : run.in<float>(MatrixOp::b);
      for (const ProductRun& products : runs_) {
        const cuda::GemmCall call{
            .problem = p_,
            .batch = products.count,
            .a = {run.in<float>(MatrixOp::a) + products.a * p_.a_floats(), p_.trans_a ? p_.gemm_m : p_.gemm_k,
                  p_.trans_a, products.a_step * p_.a_floats()},
            .b = {b + products.b * p_.b_floats(), p_.trans_b ? p_.gemm_k : p_.gemm_n, p_.trans_b,
                  products.b_step * p_.b_floats()},
            .c = p_.c ? run.in<float>(MatrixOp::c) : nullptr,
            .y = run.out<float>() + products.y * p_.y_floats()};
        if (slices_ > 0)
          cuda::gemm_few_rows(*run.cuda, call, slices_, p_.gemm_k % 4 == 0);
        else if (multiply_)
          cuda::gemm_cublas(*run.cuda, call, *multiply_);
        else
          cuda::gemm_tiled(*run.cuda, call);
      }
    }
  }

 private:
  MatrixProblem p_;  ///< with B as run() sees it
  bool prepared_;
  std::vector<ProductRun> runs_;
  int slices_ = 0;                    ///< few_rows
  std::optional<Multiply> multiply_;  ///< cublas
};

class CudaProduct final : public MatrixKernel {
 public:
  std::string_view name() const override { return "gemm"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    return std::make_unique<BoundProduct>(matrix_problem(binding.problem), binding.candidate.config);
  }

 private:
  Offer plan(const Problem& node, const MatrixProblem& p, const Target& target) const override {
    if (!cuda::gemm_fits(p.gemm_m, p.gemm_n, p.gemm_k))
      return Offer::refuse(fmt::format("the product of {} and {} is too large for 32-bit sizes",
                                       node.shape(MatrixOp::a).str(), node.shape(MatrixOp::b).str()));
    // fold_batch_norm and fold_scale make these for constant B only.
    if (!p.scale.empty() && !p.b_known) return Offer::refuse("weight_scale on a B that is computed");
    Candidate candidate;
    ConfigWriter config;
    candidate.tolerance = sum_tolerance(p.gemm_k);
    if (has_few_rows(p)) {
      // Two blocks for each multiprocessor, if sharing the sum can make as many: of one device, whatever the one at
      // hand, so that the order of summation belongs to the problem.
      int slices = 1;
      while (slices < cuda::few_rows_warps && cuda::few_rows_blocks(p.gemm_n, slices) < 2 * reference_gpu().units)
        slices *= 2;
      config.add("way", few_rows).add("slices", std::int64_t{slices});
    } else if (target.device.cublas_reason.empty() && p.gemm_k > 0) {
      const bool tf32 = target.numerics.multiply == Multiply::tf32;
      config.add("way", cublas).add("tf32", tf32);
      if (tf32) candidate.tolerance = tf32_sum_tolerance(p.gemm_k);
      candidate.needs_cublas = true;
    } else {
      config.add("way", tiled);
    }
    candidate.config = config.str();
    return candidate;
  }
  std::int64_t weight_floats(const MatrixProblem& p) const override { return is_prepared(p) ? p.b_floats() : 0; }
  void write_weights(const MatrixProblem& p, const float* b, float* to) const override {
    for (std::int64_t j = 0; j < p.gemm_n; ++j)
      for (std::int64_t l = 0; l < p.gemm_k; ++l)
        to[j * p.gemm_k + l] = p.scaled(b[p.trans_b ? j * p.gemm_k + l : l * p.gemm_n + j], j);
  }
};

}  // namespace

const Kernel& cuda_product() {
  static const CudaProduct kernel;
  return kernel;
}

}  // namespace lenslet
