// Attention between channels on the CPU (AttentionProblem::between_channels): of each head Q^T K first, a matrix of
// L x S, then its softmax, and V times the transpose of that.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ops/gemm/head_kernel.h"

namespace lenslet {
namespace {

class BoundChannelAttention final : public HeadKernel {
 public:
  explicit BoundChannelAttention(const Binding& binding)
      : HeadKernel(binding, floats_of(attention_problem(binding.problem))) {}

 private:
  static std::array<std::int64_t, 5> floats_of(const AttentionProblem& p) {
    return {p.queries * p.head_size, packed_b_floats(p.head_size, p.keys), p.queries * p.keys,
            packed_b_floats(p.keys, p.queries), p.keys};
  }

  void compute(const KernelRun& run, std::int64_t n, std::int64_t head, float* scratch) const override {
    const std::int64_t tokens = p_.head_size, rows = p_.queries, columns = p_.keys;
    float *const q_columns = part(scratch, 0), *const packed_k = part(scratch, 1), *const scores = part(scratch, 2),
                 *const packed_shares = part(scratch, 3), *const k_inverse = part(scratch, 4);
    const float *const q = q_of(run, n, head), *const k = k_of(run, n, head);
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
    multiply_packed(p_.value_size, rows, columns, v_of(run, n, head), p_.v.token, packed_shares, y_of(run, n, head),
                    p_.y.token);
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
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_channel_attention_cpu(const Binding& binding) {
  return std::make_unique<BoundChannelAttention>(binding);
}

}  // namespace lenslet
