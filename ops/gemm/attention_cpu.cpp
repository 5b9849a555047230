// Attention on the CPU: a head's K^T and V are packed for gemm_serial; some rows of scores at a time become
// probabilities in a scratch that L2 holds. Their sum divides the rows of y, of which there are fewer elements. Rows
// that a table names are copied beside the scratch, and those of y from there; rows of Q and K that are normalised,
// too.

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/gemm/attention_op.h"
#include "ops/gemm/head_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm/attention_cpu.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/first_lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {

/// x[0, n) becomes e^(scale * x + bias - the largest); 0 from n to the next whole vector. Returns 1 / their sum; 0
/// where all are e^-inf. `bias` may be null.
float exp_row(float* x, std::int64_t n, float scale, const float* bias) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity()), factor = hn::Set(d, scale);
  auto most = lowest;
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    const auto score = bias == nullptr ? hn::Mul(v, factor) : hn::MulAdd(v, factor, hn::LoadU(d, bias + i));
    hn::StoreU(score, d, x + i);
    most = hn::Max(most, score);
  }
  if (i < n) {
    const auto count = static_cast<std::size_t>(n - i);
    const auto tail = bias == nullptr ? hn::Zero(d) : load_first(d, bias + i, count);
    const auto score = hn::MulAdd(hn::LoadU(d, x + i), factor, tail);
    const auto some = hn::IfThenElse(hn::FirstN(d, count), score, lowest);
    hn::StoreU(some, d, x + i);
    most = hn::Max(most, some);
    i += lanes;
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  const float top = largest == -std::numeric_limits<float>::infinity() ? 0.0F : largest;
  // Below 2^-100 of the largest: 0. Subnormal numbers, here or in the product with V, take 20 times as long.
  const auto shift = hn::Set(d, top), least = hn::Set(d, -69.3F);
  auto sum = hn::Zero(d);
  for (std::int64_t at = 0; at < i; at += lanes) {
    const auto from_top = hn::Sub(hn::LoadU(d, x + at), shift);
    const auto small = hn::Lt(from_top, least);
    const auto e = hn::IfThenZeroElse(small, exp_f32(d, hn::IfThenElse(small, least, from_top)));
    hn::StoreU(e, d, x + at);
    sum = hn::Add(sum, e);
  }
  const float total = hn::GetLane(hn::SumOfLanes(d, sum));
  return total == 0 ? 0.0F : 1 / total;
}

void scale_row(float* y, std::int64_t n, float factor) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Set(d, factor)), d, y + i);
  for (; i < n; ++i) y[i] *= factor;
}

/// Divides each row by its L2 norm, or by epsilon where that is larger.
void normalize_rows(float* x, std::int64_t rows, std::int64_t n, float epsilon) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < rows; ++row, x += n) {
    auto sum = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const auto v = hn::LoadU(d, x + i);
      sum = hn::MulAdd(v, v, sum);
    }
    float squares = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; i < n; ++i) squares += x[i] * x[i];
    scale_row(x, n, 1 / std::max(std::sqrt(squares), epsilon));
  }
}

void exp_rows(float* x, std::int64_t rows, std::int64_t n, std::int64_t stride, float scale, const float* bias,
              std::int64_t bias_stride, float* inverse) {
  for (std::int64_t i = 0; i < rows; ++i)
    inverse[i] = exp_row(x + i * stride, n, scale, bias == nullptr ? nullptr : bias + i * bias_stride);
}
void scale_rows(float* y, std::int64_t rows, std::int64_t n, std::int64_t stride, const float* factors) {
  for (std::int64_t i = 0; i < rows; ++i) scale_row(y + i * stride, n, factors[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
namespace {

HWY_EXPORT(exp_rows);
HWY_EXPORT(scale_rows);
HWY_EXPORT(normalize_rows);

class BoundAttention final : public BoundKernel {
 public:
  explicit BoundAttention(const Binding& binding)
      : p_(attention_problem(binding.problem)), threads_(binding.threads()) {
    const auto inputs = binding.problem.inputs();
    for (const std::size_t i : {AttentionOp::q, AttentionOp::k, AttentionOp::v})
      holders_[i] = AttentionOp::holder(inputs, i);
    stride_ = whole_lines(p_.keys);
    // Scores of 48 KiB beside K and V, in equal blocks of whole tiles.
    constexpr std::int64_t score_floats = 12 << 10;
    const std::int64_t tile = gemm_tile_rows();
    const std::int64_t most = std::max(tile, score_floats / std::max(stride_, line_floats) / tile * tile);
    blocks_ = std::max<std::int64_t>(1, (p_.queries + most - 1) / most);
    rows_ = ((p_.queries + blocks_ - 1) / blocks_ + tile - 1) / tile * tile;
    blocks_ = std::max<std::int64_t>(1, (p_.queries + rows_ - 1) / rows_);
    k_floats_ = whole_lines(packed_b_floats(p_.head_size, p_.keys));
    v_floats_ = whole_lines(packed_b_floats(p_.keys, p_.value_size));
    if (p_.rows_n > 0 || p_.qk_norm_epsilon)
      copy_floats_ = whole_lines(std::max(p_.keys, rows_) * std::max(p_.head_size, p_.value_size));
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * worker_floats()) * sizeof(float);
  }

  void run(const KernelRun& run) const override {
    const std::int64_t heads = p_.n * p_.heads;
    if (p_.queries == 0 || p_.value_size == 0) return;
    // A piece is all blocks of a head, which share what is packed, unless threads would have none.
    const std::int64_t grain = heads >= 2 * threads_ ? blocks_ : std::max<std::int64_t>(1, blocks_ / threads_);
    run.pool->parallel_for(heads * blocks_, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const packed_k = reinterpret_cast<float*>(run.workspace.data()) + worker * worker_floats();
      float* const packed_v = packed_k + k_floats_;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t head = i / blocks_;
        if (i == begin || i % blocks_ == 0) {
          float* const copies = packed_v + v_floats_ + rows_ * stride_ + whole_lines(rows_);
          const Rows k = rows_of(run, AttentionOp::k, p_.k, head, 0, p_.keys, p_.head_size, copies);
          pack_b(k.data, 1, k.stride, p_.head_size, p_.keys, packed_k);
          const Rows v = rows_of(run, AttentionOp::v, p_.v, head, 0, p_.keys, p_.value_size, copies);
          pack_b(v.data, v.stride, 1, p_.keys, p_.value_size, packed_v);
        }
        compute(run, head, i % blocks_ * rows_, packed_k, packed_v);
      }
    });
  }

 private:
  /// Rows of one head, `stride` apart.
  struct Rows {
    const float* data;
    std::int64_t stride;
  };

  std::int64_t worker_floats() const {
    return k_floats_ + v_floats_ + rows_ * stride_ + whole_lines(rows_) + copy_floats_;
  }
  /// Where token `token` of one of N * H heads lies.
  std::int64_t lies(const KernelRun& run, const AttentionOperand& operand, std::int64_t head,
                    std::int64_t token) const {
    const std::int64_t n = head / p_.heads, start = operand.offset + head % p_.heads * operand.head;
    if (p_.rows_n == 0) return start + n * operand.batch + token * operand.token;
    const std::int32_t* const table = run.in<std::int32_t>(AttentionOp::rows) + n % p_.rows_n * p_.queries;
    return start + (n / p_.rows_n * p_.rows_n * p_.queries + table[token]) * operand.token;
  }
  /// `count` rows of input `i` from `first` on, in `copies` if a table names them or they are normalised.
  Rows rows_of(const KernelRun& run, std::size_t i, const AttentionOperand& operand, std::int64_t head,
               std::int64_t first, std::int64_t count, std::int64_t channels, float* copies) const {
    const float* const from = run.in<float>(holders_[i]);
    const bool normalised = p_.qk_norm_epsilon && i != AttentionOp::v;
    if (p_.rows_n == 0 && !normalised) return {from + lies(run, operand, head, first), operand.token};
    for (std::int64_t row = 0; row < count; ++row)
      std::copy_n(from + lies(run, operand, head, first + row), channels, copies + row * channels);
    if (normalised)
      HWY_DYNAMIC_DISPATCH(normalize_rows)(copies, count, channels, static_cast<float>(*p_.qk_norm_epsilon));
    return {copies, channels};
  }

  /// Rows from `first` on of one of N * H heads.
  void compute(const KernelRun& run, std::int64_t head, std::int64_t first, const float* packed_k,
               float* packed_v) const {
    const std::int64_t rows = std::min(rows_, p_.queries - first);
    float* const scores = packed_v + v_floats_;
    float* const inverse = scores + rows_ * stride_;
    float* const copies = inverse + whole_lines(rows_);
    const Rows q = rows_of(run, AttentionOp::q, p_.q, head, first, rows, p_.head_size, copies);
    multiply_packed(rows, p_.keys, p_.head_size, q.data, q.stride, packed_k, scores, stride_);
    const float* bias = run.in<float>(AttentionOp::bias);
    const std::int64_t bias_stride = p_.bias_queries == 1 ? 0 : p_.keys;
    if (p_.bias_n > 0) {
      const std::int64_t plane = head / p_.heads % p_.bias_n * p_.bias_heads + head % p_.heads % p_.bias_heads;
      bias += plane * p_.bias_queries * p_.keys + first * bias_stride;
    }
    const double scale =
        p_.head_scales.empty() ? p_.scale : p_.scale * p_.head_scales[static_cast<std::size_t>(head % p_.heads)];
    HWY_DYNAMIC_DISPATCH(exp_rows)
    (scores, rows, p_.keys, stride_, static_cast<float>(scale), bias, bias_stride, inverse);
    const bool strided = p_.rows_n == 0;
    float* const y = strided ? run.out<float>() + lies(run, p_.y, head, first) : copies;
    const std::int64_t y_stride = strided ? p_.y.token : p_.value_size;
    multiply_packed(rows, p_.value_size, p_.keys, scores, stride_, packed_v, y, y_stride);
    HWY_DYNAMIC_DISPATCH(scale_rows)(y, rows, p_.value_size, y_stride, inverse);
    for (std::int64_t row = 0; row < rows && !strided; ++row)
      std::copy_n(y + row * y_stride, p_.value_size, run.out<float>() + lies(run, p_.y, head, first + row));
  }

  AttentionProblem p_;
  std::size_t holders_[3] = {};
  std::int64_t threads_, stride_ = 0, rows_ = 0, blocks_ = 0, k_floats_ = 0, v_floats_ = 0, copy_floats_ = 0;
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_attention_cpu(const Binding& binding) {
  const AttentionProblem p = attention_problem(binding.problem);
  if (p.linear_epsilon) return bind_linear_attention_cpu(binding);
  if (p.between_channels) return bind_channel_attention_cpu(binding);
  return std::make_unique<BoundAttention>(binding);
}

}  // namespace lenslet
#endif
