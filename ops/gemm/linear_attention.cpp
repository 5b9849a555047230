// ReLU linear attention on the CPU (AttentionProblem::linear_epsilon): of each head relu(K)^T [V 1] first, a matrix of
// D x (E + 1), and relu(Q) times that, some rows at a time.

#include <algorithm>

#include "ops/gemm/attention_op.h"
#include "ops/gemm/head_product.h"

namespace lenslet {
namespace {

constexpr std::int64_t block_rows = 64;

class BoundLinearAttention final : public BoundKernel {
 public:
  explicit BoundLinearAttention(const Binding& binding)
      : p_(attention_problem(binding.problem)), threads_(binding.threads()) {
    const auto inputs = binding.problem.inputs();
    k_ = AttentionOp::holder(inputs, AttentionOp::k), v_ = AttentionOp::holder(inputs, AttentionOp::v);
    const std::int64_t d = p_.head_size, columns = p_.value_size + 1;
    const std::int64_t floats[] = {d * p_.keys,    packed_b_floats(p_.keys, p_.value_size),
                                   d * columns,    packed_b_floats(d, columns),
                                   block_rows * d, block_rows * columns};
    for (std::size_t i = 0; i < std::size(floats); ++i) starts_[i + 1] = starts_[i] + whole_lines(floats[i]);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * starts_[6]) * sizeof(float);
  }

  void run(const KernelRun& run) const override {
    run.pool->parallel_for(p_.n * p_.heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const scratch = reinterpret_cast<float*>(run.workspace.data()) + worker * starts_[6];
      for (std::int64_t head = begin; head < end; ++head) compute(run, head / p_.heads, head % p_.heads, scratch);
    });
  }

 private:
  static std::int64_t start(const AttentionOperand& o, std::int64_t n, std::int64_t head) {
    return o.offset + n * o.batch + head * o.head;
  }

  void compute(const KernelRun& run, std::int64_t n, std::int64_t head, float* scratch) const {
    const std::int64_t d = p_.head_size, e = p_.value_size, columns = e + 1;
    float *const k_columns = scratch, *const packed_v = scratch + starts_[1], *const kv = scratch + starts_[2],
                 *const packed_kv = scratch + starts_[3], *const q_rows = scratch + starts_[4],
                 *const sums = scratch + starts_[5];
    const float* const k = run.in<float>(k_) + start(p_.k, n, head);
    pack_b(run.in<float>(v_) + start(p_.v, n, head), p_.v.token, 1, p_.keys, e, packed_v);
    for (std::int64_t i = 0; i < d; ++i) {
      float sum = 0;
      for (std::int64_t j = 0; j < p_.keys; ++j)
        sum += k_columns[i * p_.keys + j] = std::max(k[j * p_.k.token + i], 0.0F);
      kv[i * columns + e] = sum;
    }
    multiply_packed(d, e, p_.keys, k_columns, p_.keys, packed_v, kv, columns);
    pack_b(kv, columns, 1, d, columns, packed_kv);
    const float* const q = run.in<float>(AttentionOp::q) + start(p_.q, n, head);
    float* const y = run.out<float>() + start(p_.y, n, head);
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

  AttentionProblem p_;
  std::size_t k_ = 0, v_ = 0;
  std::int64_t threads_, starts_[7] = {};  ///< of what a worker needs, in floats
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_linear_attention_cpu(const Binding& binding) {
  return std::make_unique<BoundLinearAttention>(binding);
}

}  // namespace lenslet
