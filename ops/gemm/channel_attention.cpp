// Attention between channels on the CPU (AttentionProblem::between_channels): of each head Q^T K first, a matrix of
// L x S, then its softmax, and V times the transpose of that.

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/gemm/attention_op.h"
#include "ops/gemm/head_product.h"

namespace lenslet {
namespace {

class BoundChannelAttention final : public BoundKernel {
 public:
  explicit BoundChannelAttention(const Binding& binding)
      : p_(attention_problem(binding.problem)), threads_(binding.threads()) {
    const auto inputs = binding.problem.inputs();
    k_ = AttentionOp::holder(inputs, AttentionOp::k), v_ = AttentionOp::holder(inputs, AttentionOp::v);
    const std::int64_t floats[] = {p_.queries * p_.head_size, packed_b_floats(p_.head_size, p_.keys),
                                   p_.queries * p_.keys, packed_b_floats(p_.keys, p_.queries), p_.keys};
    for (std::size_t i = 0; i < std::size(floats); ++i) starts_[i + 1] = starts_[i] + whole_lines(floats[i]);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * starts_[5]) * sizeof(float);
  }

  void run(const KernelRun& run) const override {
    run.pool->parallel_for(p_.n * p_.heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const scratch = reinterpret_cast<float*>(run.workspace.data()) + worker * starts_[5];
      for (std::int64_t head = begin; head < end; ++head) compute(run, head / p_.heads, head % p_.heads, scratch);
    });
  }

 private:
  static std::int64_t start(const AttentionOperand& o, std::int64_t n, std::int64_t head) {
    return o.offset + n * o.batch + head * o.head;
  }

  void compute(const KernelRun& run, std::int64_t n, std::int64_t head, float* scratch) const {
    const std::int64_t tokens = p_.head_size, rows = p_.queries, columns = p_.keys;
    float *const q_columns = scratch, *const packed_k = scratch + starts_[1], *const scores = scratch + starts_[2],
                 *const packed_shares = scratch + starts_[3], *const k_inverse = scratch + starts_[4];
    const float *const q = run.in<float>(AttentionOp::q) + start(p_.q, n, head), *const k = run.in<float>(k_) +
                                                                                            start(p_.k, n, head);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t t = 0; t < tokens; ++t) q_columns[i * tokens + t] = q[t * p_.q.token + i];
    pack_b(k, p_.k.token, 1, tokens, columns, packed_k);
    multiply_packed(rows, columns, tokens, q_columns, tokens, packed_k, scores, columns);

    const double by_head = p_.head_scales.empty() ? 1 : p_.head_scales[static_cast<std::size_t>(head)];
    const auto scale = static_cast<float>(p_.scale * by_head);
    for (std::int64_t j = 0; j < columns; ++j) k_inverse[j] = inverse_norm(k + j, p_.k.token);
    for (std::int64_t i = 0; i < rows; ++i)
      softmax(scores + i * columns, k_inverse, scale * inverse_norm(q + i, p_.q.token));

    pack_b(scores, 1, columns, columns, rows, packed_shares);
    multiply_packed(p_.value_size, rows, columns, run.in<float>(v_) + start(p_.v, n, head), p_.v.token, packed_shares,
                    run.out<float>() + start(p_.y, n, head), p_.y.token);
  }

  /// Of a column of Q or K; 1 where they are not normalised.
  float inverse_norm(const float* column, std::int64_t token) const {
    if (!p_.qk_norm_epsilon) return 1;
    double squares = 0;
    for (std::int64_t t = 0; t < p_.head_size; ++t)
      squares += static_cast<double>(column[t * token]) * static_cast<double>(column[t * token]);
    return static_cast<float>(1 / std::max(std::sqrt(squares), *p_.qk_norm_epsilon));
  }

  /// Of a row of scores, each times `scale` and its column's factor; zeros where all are -infinity.
  void softmax(float* row, const float* factors, float scale) const {
    const std::int64_t count = p_.keys;
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    float top = lowest, sum = 0;
    for (std::int64_t j = 0; j < count; ++j) top = std::max(top, row[j] *= scale * factors[j]);
    if (top == lowest) top = 0;
    for (std::int64_t j = 0; j < count; ++j) sum += row[j] = std::exp(row[j] - top);
    for (std::int64_t j = 0; j < count; ++j) row[j] = sum == 0 ? 0 : row[j] / sum;
  }

  AttentionProblem p_;
  std::size_t k_ = 0, v_ = 0;
  std::int64_t threads_, starts_[6] = {};  ///< of what a worker needs, in floats
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_channel_attention_cpu(const Binding& binding) {
  return std::make_unique<BoundChannelAttention>(binding);
}

}  // namespace lenslet
