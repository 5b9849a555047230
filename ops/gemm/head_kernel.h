#pragma once
// A kernel of attention on the CPU that computes a head at once: threads share the heads, each in scratch of its own.

#include <cstdint>
#include <span>
#include <vector>

#include "ops/gemm/attention_op.h"
#include "ops/gemm/head_product.h"

namespace lenslet {

class HeadKernel : public BoundKernel {
 public:
  std::size_t workspace_bytes() const final {
    return static_cast<std::size_t>(threads_ * starts_.back()) * sizeof(float);
  }
  void run(const KernelRun& run) const final;

 protected:
  /// `floats` of each part of a thread's scratch.
  HeadKernel(const Binding& binding, std::span<const std::int64_t> floats);

  /// Part i of the scratch.
  float* part(float* scratch, std::size_t i) const { return scratch + starts_[i]; }
  // A head's operands from channel 0 of token 0 on.
  const float* q_of(const KernelRun& run, std::int64_t n, std::int64_t head) const {
    return run.in<float>(AttentionOp::q) + start(p_.q, n, head);
  }
  const float* k_of(const KernelRun& run, std::int64_t n, std::int64_t head) const {
    return run.in<float>(k_) + start(p_.k, n, head);
  }
  const float* v_of(const KernelRun& run, std::int64_t n, std::int64_t head) const {
    return run.in<float>(v_) + start(p_.v, n, head);
  }
  float* y_of(const KernelRun& run, std::int64_t n, std::int64_t head) const {
    return run.out<float>() + start(p_.y, n, head);
  }

  const AttentionProblem p_;

 private:
  virtual void compute(const KernelRun& run, std::int64_t n, std::int64_t head, float* scratch) const = 0;
  static std::int64_t start(const AttentionOperand& o, std::int64_t n, std::int64_t head) {
    return o.offset + n * o.batch + head * o.head;
  }

  std::size_t k_, v_;
  std::int64_t threads_;
  std::vector<std::int64_t> starts_{0};  ///< of the parts, in floats; then the end
};

}  // namespace lenslet
