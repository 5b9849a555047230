// Matrix products on CUDA: chooses the kernel and calls it. The kernels are in gemm.cu.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/cuda_built.h"
#include "ops/core/sum_tolerance.h"
#include "ops/core/tilings.h"
#include "ops/gemm/gemm_cuda.h"
#include "ops/gemm/packed_weights.h"

namespace lenslet {
namespace {

using Multiply = Numerics::Multiply;

// Configurations: "kernel=few_rows split_k=4", with "packed=yes" for 20-bit weights; "kernel=few_rows_mma eights=2";
// "kernel=cublas tf32=no"; "kernel=tiled"; or "kernel=cute", with "tf32=yes" for float32, followed by a CutePlan.
constexpr std::string_view few_rows = "few_rows", few_rows_mma = "few_rows_mma", cublas = "cublas", tiled = "tiled",
                           cute = "cute";

bool is_half(DType type) { return type == DType::f16 || type == DType::bf16; }

/// True if B is packed beforehand as [n,k] with A's type and order, and scaled. float32: only a single matrix that
/// needs it.
bool is_prepared(const MatrixProblem& p, DType type) {
  if (!p.b_known || p.b_floats() == 0) return false;
  return is_half(type) ? p.batch_b.elems() > 0
                       : p.batch_b.elems() == 1 && (!p.trans_b || p.scales() || p.channels != 0);
}

bool has_few_rows(const MatrixProblem& p, DType type) {
  return p.batch.elems() == 1 && p.gemm_m <= cuda::most_few_rows && !p.trans_a && (p.trans_b || is_prepared(p, type)) &&
         (!is_half(type) || p.gemm_k > 0);
}

bool has_few_rows_mma(const MatrixProblem& p, DType type) {
  return is_half(type) && p.batch.elems() == 1 && p.gemm_m <= cuda::most_few_rows_mma && p.gemm_k > 0 &&
         p.gemm_k % 8 == 0 && !p.trans_a && (p.trans_b || is_prepared(p, type));
}

/// True if a 16-bit A is multiplied by float32 weights directly. A float32 y asks for precision, and few rows are bound
/// by B's bytes: so a classifier's last product needs no Cast before it.
bool meets_floats(const MatrixProblem& p, DType type, DType y_type) {
  return is_half(type) && y_type == DType::f32 && p.b_known && p.gemm_k > 0 && p.gemm_k % 4 == 0 &&
         has_few_rows(p, DType::f32);
}
/// True if 20-bit weights may replace float32 ones: few rows, TF32 allowed. Small weights stay: L2 is fast enough.
bool may_pack(const MatrixProblem& p, DType type) {
  constexpr std::int64_t least_floats = 1 << 20;
  return type == DType::f32 && p.b_known && p.batch_b.elems() == 1 && p.gemm_k % cuda::packed_lane_weights == 0 &&
         p.b_floats() >= least_floats && p.batch.elems() == 1 && p.gemm_m <= cuda::most_few_rows && !p.trans_a;
}
constexpr std::string_view packed = " packed=yes";

DType type_of_weights(const MatrixProblem& p, DType type, DType y_type) {
  return meets_floats(p, type, y_type) ? DType::f32 : type;
}

/// One run of products as gemm_cute takes it; the plan is made for the longest run.
cuda::CuteProblem cute_problem(const MatrixProblem& p, DType type, DType y_type, Multiply of_floats,
                               std::int64_t batch) {
  cuda::CuteProblem problem{.multiply = type == DType::f16    ? Multiply::fp16
                                        : type == DType::bf16 ? Multiply::bf16
                                                              : of_floats,
                            .y_type = y_type,
                            .m = p.gemm_m,
                            .n = p.gemm_n,
                            .k = p.gemm_k,
                            .batch = batch,
                            .b_transposed = p.trans_b || is_prepared(p, type)};
  const auto vector = static_cast<std::int64_t>(16 / problem.element_bytes());
  problem.aligned = p.gemm_k % vector == 0 && (problem.b_transposed || p.gemm_n % vector == 0);
  return problem;
}

std::int64_t longest(const std::vector<ProductRun>& runs) {
  std::int64_t most = 1;
  for (const ProductRun& run : runs) most = std::max(most, run.count);
  return most;
}

class BoundProduct final : public BoundKernel {
 public:
  BoundProduct(const MatrixProblem& p, DType type, DType y_type, std::string_view config)
      : p_(p),
        a_type_(type),
        type_(type_of_weights(p, type, y_type)),
        prepared_(is_prepared(p, type_)),
        runs_(product_runs(p)) {
    ConfigReader reader(config);
    const std::string_view kernel = reader.word("kernel");
    packed_ = config.ends_with(packed);
    if (packed_ && (kernel != few_rows || !may_pack(p, type)))
      reader.refuse("there is no such way to compute this product");
    prepared_ = prepared_ || packed_;
    if (prepared_) {
      p_.trans_b = true;
      p_.alpha = 1;
    }
    half_ = cute_problem(p, type, y_type, Multiply::fp32, longest(runs_));
    if (kernel == few_rows && (packed_ || has_few_rows(p, type_))) {
      split_k_ = static_cast<int>(reader.integer("split_k", 1, cuda::few_rows_warps));
      if (packed_) reader.flag("packed");
    } else if (a_type_ != type_)
      reader.refuse("there is no such way to compute this product");
    else if (kernel == few_rows_mma && has_few_rows_mma(p, type))
      eights_ = static_cast<int>(reader.integer("eights", 1, 2));
    else if (kernel == cute && p.gemm_k > 0 && !p.trans_a) {
      if (!is_half(type) && reader.flag("tf32")) half_.multiply = Multiply::tf32;
      plan_ = cuda::CutePlan::read(reader, half_);
    } else if (is_half(type))
      reader.refuse("there is no such way to compute this product");
    else if (kernel == cublas && p.gemm_k > 0)
      multiply_ = reader.flag("tf32") ? Multiply::tf32 : Multiply::fp32;
    else if (kernel != tiled)
      reader.refuse("there is no such way to compute this product");
    reader.finish();
  }

  std::size_t workspace_bytes() const override { return plan_ ? cuda::cute_workspace_bytes(half_, *plan_) : 0; }

  void run([[maybe_unused]] const KernelRun& run) const override {
    if constexpr (cuda_built) {
      if (plan_ || is_half(type_)) return run_cute(run);
      const float* const b = prepared_ ? reinterpret_cast<const float*>(run.blob) : run.in<float>(MatrixOp::b);
      for (const ProductRun& products : runs_) {
        const cuda::GemmCall call{
            .problem = p_,
            .batch = products.count,
            .a = {run.in<float>(MatrixOp::a) + products.a * p_.a_floats(), p_.trans_a ? p_.gemm_m : p_.gemm_k,
                  p_.trans_a, products.a_step * p_.a_floats()},
            .b = {b + products.b * p_.b_floats(), p_.trans_b ? p_.gemm_k : p_.gemm_n, p_.trans_b,
                  products.b_step * p_.b_floats()},
            .b_known = p_.b_known,
            .c = p_.c ? run.in<float>(MatrixOp::c) : nullptr,
            .y = run.out<float>() + products.y * p_.y_floats()};
        if (packed_)
          cuda::gemm_few_rows_packed(*run.cuda, call, run.blob, split_k_);
        else if (a_type_ != type_)
          cuda::gemm_few_rows_by_floats(*run.cuda, call, a_type_, run.inputs[MatrixOp::a].data(), split_k_);
        else if (split_k_ > 0)
          cuda::gemm_few_rows(*run.cuda, call, split_k_, p_.gemm_k % 4 == 0);
        else if (multiply_)
          cuda::gemm_cublas(*run.cuda, call, *multiply_);
        else
          cuda::gemm_tiled(*run.cuda, call);
      }
    }
  }

 private:
  void run_cute([[maybe_unused]] const KernelRun& run) const {
    if constexpr (cuda_built) {
      const auto element = static_cast<std::int64_t>(half_.element_bytes());
      const auto y_element = static_cast<std::int64_t>(dtype_bytes(half_.y_type));
      const std::byte* const b = prepared_ ? run.blob : run.in<std::byte>(MatrixOp::b);
      for (const ProductRun& products : runs_) {
        cuda::CuteCall call{.problem = half_,
                            .a = {run.in<std::byte>(MatrixOp::a) + products.a * p_.a_floats() * element, p_.gemm_k,
                                  products.a_step * p_.a_floats()},
                            .b = {b + products.b * p_.b_floats() * element, p_.trans_b ? p_.gemm_k : p_.gemm_n,
                                  products.b_step * p_.b_floats()},
                            .b_known = prepared_,
                            .alpha = p_.alpha,
                            .beta = p_.beta,
                            .c = p_.c ? run.in<float>(MatrixOp::c) : nullptr,
                            .c_row = p_.c_row,
                            .c_col = p_.c_col,
                            .activation = p_.activation,
                            .y = run.out<std::byte>() + products.y * p_.y_floats() * y_element,
                            .workspace = reinterpret_cast<float*>(run.workspace.data())};
        call.problem.batch = products.count;
        if (split_k_ > 0)
          cuda::gemm_few_rows_half(*run.cuda, call, split_k_);
        else if (eights_ > 0)
          cuda::gemm_few_rows_mma(*run.cuda, call, eights_);
        else
          cuda::gemm_cute(*run.cuda, call, *plan_);
      }
    }
  }

  MatrixProblem p_;  ///< with B as run() sees it
  DType a_type_;
  DType type_;  ///< of B in run(), and of A except in gemm_few_rows_by_floats()
  bool prepared_;
  bool packed_ = false;  ///< its weights, few_rows
  std::vector<ProductRun> runs_;
  int split_k_ = 0;                     ///< few_rows
  int eights_ = 0;                      ///< few_rows_mma
  std::optional<Multiply> multiply_;    ///< cublas
  std::optional<cuda::CutePlan> plan_;  ///< cute
  cuda::CuteProblem half_;              ///< of 16-bit types and of cute, its longest run
};

class CudaProduct final : public MatrixKernel {
 public:
  std::string_view name() const override { return "gemm"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<float, Float16, BFloat16>>; }
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    return std::make_unique<BoundProduct>(matrix_problem(binding.problem),
                                          binding.problem.inputs()[MatrixOp::a].type.dtype,
                                          binding.problem.outputs()[0].dtype, binding.candidate.config);
  }

  std::vector<Candidate> all_candidates(const Problem& node, const Target& target) const override {
    std::vector<Candidate> all = offer(node, target).candidates;
    if (all.empty()) return all;
    const Candidate first = all.front();
    const auto add = [&](const Candidate& other) {
      if (other.config != first.config) all.push_back(other);
    };
    Candidate other = first;
    ConfigReader reader(first.config);
    const std::string_view kernel = reader.word("kernel");
    if (kernel == cute) {
      const cuda::CuteProblem product = cute_problem(node, matrix_problem(node), target.numerics.multiply);
      for (const cuda::CutePlan& tiling : by_estimate(cuda::cute_plans(product, target.device), [&](const auto& plan) {
             return cuda::cute_plan_us(product, plan, reference_gpu());
           })) {
        take_cute(other, product, tiling, target.device);
        add(other);
      }
    }
    const bool of_few = kernel == few_rows;
    for (int n = 1; (of_few || kernel == few_rows_mma) && n <= (of_few ? cuda::few_rows_warps : 2); n *= 2) {
      ConfigWriter config;
      config.add("kernel", kernel).add(of_few ? "split_k" : "eights", std::int64_t{n});
      if (first.config.ends_with(packed)) config.add("packed", true);
      other.config = config.str();
      add(other);
    }
    return all;
  }

 private:
  /// Of the longest run of products.
  static cuda::CuteProblem cute_problem(const Problem& node, const MatrixProblem& p, Multiply of_floats) {
    return lenslet::cute_problem(p, node.inputs()[MatrixOp::a].type.dtype, node.outputs()[0].dtype, of_floats,
                                 longest(product_runs(p)));
  }
  static void take_cute(Candidate& candidate, const cuda::CuteProblem& product, const cuda::CutePlan& tiling,
                        const DeviceProfile& device) {
    ConfigWriter config;
    config.add("kernel", cute);
    if (product.multiply == Multiply::tf32) config.add("tf32", true);
    tiling.write(config);
    candidate.config = config.str();
    candidate.workspace_bytes = cuda::cute_workspace_bytes(product, tiling);
    candidate.estimated_us = cuda::cute_plan_us(product, tiling, device);
  }

  Offer plan(const Problem& node, const MatrixProblem& p, const Target& target) const override {
    if (!cuda::gemm_fits(p.gemm_m, p.gemm_n, p.gemm_k))
      return Offer::refuse(fmt::format("the product of {} and {} is too large for 32-bit sizes",
                                       node.shape(MatrixOp::a).str(), node.shape(MatrixOp::b).str()));
    // fold_batch_norm and fold_scale create scales for constant B only.
    if (!p.scale.empty() && !p.b_known) return Offer::refuse("weight_scale on a B that is computed");
    const DType type = node.inputs()[MatrixOp::a].type.dtype, y_type = node.outputs()[0].dtype;
    if (type == DType::f32 && y_type != type) return Offer::refuse(fmt::format("product into {}", to_string(y_type)));
    if (is_half(type))
      if (const std::string why = refuse_half(node, p, type, y_type); !why.empty()) return Offer::refuse(why);
    Candidate candidate;
    ConfigWriter config;
    if (meets_floats(p, type, y_type)) {
      const int split_k = cuda::few_rows_split_k(p.gemm_n, reference_gpu().units);
      candidate.config = config.add("kernel", few_rows).add("split_k", std::int64_t{split_k}).str();
      candidate.tolerance = sum_tolerance(p.gemm_k);
      return candidate;
    }
    candidate.tolerance = is_half(type) ? half_sum_tolerance(type, p.gemm_k) : sum_tolerance(p.gemm_k);
    const bool tf32 = !is_half(type) && target.numerics.multiply == Multiply::tf32;
    const bool has_cublas = !is_half(type) && target.device.cublas_reason.empty() && p.gemm_k > 0;
    const cuda::CuteProblem product = cute_problem(node, p, target.numerics.multiply);
    const int eights = has_few_rows_mma(p, type) ? cuda::few_rows_mma_eights(p.gemm_m, p.gemm_n) : 0;
    if (eights > 0) {
      config.add("kernel", few_rows_mma).add("eights", std::int64_t{eights});
    } else if (has_few_rows(p, type)) {
      // For the reference device, not the one at hand, so that the summation order depends on the problem alone.
      const int split_k = cuda::few_rows_split_k(p.gemm_n, reference_gpu().units);
      config.add("kernel", few_rows).add("split_k", std::int64_t{split_k});
      if (tf32 && may_pack(p, type)) {
        config.add("packed", true);
        candidate.tolerance = tf32_sum_tolerance(p.gemm_k);
      }
    } else if (is_half(type) || (tf32 && !has_cublas && !p.trans_a && cute_refusal(product, target.device).empty())) {
      if (std::string why = cute_refusal(product, target.device); !why.empty()) return Offer::refuse(std::move(why));
      if (tf32) candidate.tolerance = tf32_sum_tolerance(p.gemm_k);
      take_cute(candidate, product, cuda::plan_cute(product, target.device), target.device);
      return candidate;
    } else if (has_cublas) {
      config.add("kernel", cublas).add("tf32", tf32);
      if (tf32) candidate.tolerance = tf32_sum_tolerance(p.gemm_k);
      candidate.needs_cublas = true;
    } else {
      config.add("kernel", tiled);
    }
    candidate.config = config.str();
    return candidate;
  }

  /// Why a product of 16-bit types is refused.
  static std::string refuse_half(const Problem& node, const MatrixProblem& p, DType type, DType y_type) {
    const auto of = [&](std::size_t input) { return node.inputs()[input].type.dtype; };
    if (y_type != type && y_type != DType::f32)
      return fmt::format("product of {} into {}", to_string(type), to_string(y_type));
    if (p.trans_a) return fmt::format("product of a transposed A of {}", to_string(type));
    if (of(MatrixOp::b) != (p.b_known ? DType::f32 : type))
      return fmt::format("product of {} with a {} B of {}", to_string(type), p.b_known ? "known" : "computed",
                         to_string(of(MatrixOp::b)));
    if (p.c && of(MatrixOp::c) != DType::f32)
      return fmt::format("product of {} with a C of {}; only float32 is supported", to_string(type),
                         to_string(of(MatrixOp::c)));
    return {};
  }

  static DType weight_type(const Problem& node, const MatrixProblem& p) {
    return type_of_weights(p, node.inputs()[MatrixOp::a].type.dtype, node.outputs()[0].dtype);
  }
  Weights weights(const Problem& node, const MatrixProblem& p, std::string_view config) const override {
    if (config.ends_with(packed)) return {"tf32 in 20 bits", p.gemm_n * cuda::packed_row_bytes(p.gemm_k)};
    const DType type = weight_type(node, p);
    const auto bytes = static_cast<std::int64_t>(dtype_bytes(type));
    return {to_string(type), is_prepared(p, type) ? p.b_floats() * bytes : 0};
  }
  void write_weights(const Problem& node, const MatrixProblem& p, std::string_view config, const float* b,
                     std::byte* to) const override {
    // weight(j, l) belongs to column j and to the k index of A's element l.
    const auto for_each = [&](auto&& write) {
      const std::int64_t apart = p.rows_apart();
      for (std::int64_t j = 0; j < p.gemm_n; ++j)
        for (std::int64_t l = 0, row = 0; l < p.gemm_k; ++l, row = p.next_row(row, apart))
          write(j, l, p.scaled_exactly(b[p.trans_b ? j * p.gemm_k + row : row * p.gemm_n + j], j));
    };
    if (config.ends_with(packed)) {
      const std::int64_t row_bytes = cuda::packed_row_bytes(p.gemm_k);
      std::fill_n(to, p.gemm_n * row_bytes, std::byte{0});
      for_each([&](std::int64_t j, std::int64_t l, double weight) {
        cuda::pack_weight(to + j * row_bytes, l, static_cast<float>(weight));
      });
      return;
    }
    dispatch(weight_type(node, p), Types<float, Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      for_each([&](std::int64_t j, std::int64_t l, double weight) {
        T& at = reinterpret_cast<T*>(to)[j * p.gemm_k + l];
        if constexpr (std::is_same_v<T, Float16>)
          at.bits = f16_from_f64(weight);
        else if constexpr (std::is_same_v<T, BFloat16>)
          at.bits = bf16_from_f64(weight);
        else
          at = static_cast<float>(weight);
      });
    });
  }
};

}  // namespace

const Kernel& cuda_product() {
  static const CudaProduct kernel;
  return kernel;
}

}  // namespace lenslet
