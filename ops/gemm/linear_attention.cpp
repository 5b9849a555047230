// ReLU linear attention on the CPU (AttentionProblem::linear_epsilon): of each head relu(K)^T [V 1] first, a matrix of
// D x (E + 1), and relu(Q) times that, some rows at a time.

#include <algorithm>
#include <array>

#include "ops/gemm/head_kernel.h"

namespace lenslet {
namespace {

constexpr std::int64_t block_rows = 64;

class BoundLinearAttention final : public HeadKernel {
 public:
  explicit BoundLinearAttention(const Binding& binding)
      : HeadKernel(binding, floats_of(attention_problem(binding.problem))) {}

 private:
  static std::array<std::int64_t, 6> floats_of(const AttentionProblem& p) {
    const std::int64_t d = p.head_size, columns = p.value_size + 1;
    return {d * p.keys,     packed_b_floats(p.keys, p.value_size),
            d * columns,    packed_b_floats(d, columns),
            block_rows * d, block_rows * columns};
  }

  void compute(const KernelRun& run, std::int64_t n, std::int64_t head, float* scratch) const override {
    const std::int64_t d = p_.head_size, e = p_.value_size, columns = e + 1;
    float *const k_columns = part(scratch, 0), *const packed_v = part(scratch, 1), *const kv = part(scratch, 2),
                 *const packed_kv = part(scratch, 3), *const q_rows = part(scratch, 4), *const sums = part(scratch, 5);
    const float *const q = q_of(run, n, head), *const k = k_of(run, n, head);
    pack_b(v_of(run, n, head), p_.v.token, 1, p_.keys, e, packed_v);
    for (std::int64_t i = 0; i < d; ++i) {
      float sum = 0;
      for (std::int64_t j = 0; j < p_.keys; ++j)
        sum += k_columns[i * p_.keys + j] = std::max(k[j * p_.k.token + i], 0.0F);
      kv[i * columns + e] = sum;
    }
    multiply_packed(d, e, p_.keys, k_columns, p_.keys, packed_v, kv, columns);
    pack_b(kv, columns, 1, d, columns, packed_kv);
    float* const y = y_of(run, n, head);
    for (std::int64_t first = 0; first < p_.queries; first += block_rows) {
      const std::int64_t rows = std::min(block_rows, p_.queries - first);
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < d; ++i) q_rows[row * d + i] = std::max(q[(first + row) * p_.q.token + i], 0.0F);
      multiply_packed(rows, columns, d, q_rows, d, packed_kv, sums, columns);
      for (std::int64_t row = 0; row < rows; ++row) {
        const float* const sum = sums + row * columns;
        const float divisor = sum[e] + static_cast<float>(*p_.linear_epsilon);
        for (std::int64_t i = 0; i < e; ++i) y[(first + row) * p_.y.token + i] = sum[i] / divisor;
      }
    }
  }
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_linear_attention_cpu(const Binding& binding) {
  return std::make_unique<BoundLinearAttention>(binding);
}

}  // namespace lenslet
