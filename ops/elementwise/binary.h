#pragma once
// Arithmetic of two or more broadcast tensors: Add, Sub, Mul, Div, Pow, and Max, Min, Sum, Mean of any number.

#include <memory>
#include <string_view>
#include <vector>

#include "ops/core/op.h"
#include "ops/elementwise/binary_kernels.h"

namespace lenslet {

/// y = fold of `kind` over all inputs, NumPy broadcasting, operands of rank 4 in any layout. float32 by vector units;
/// float64 and integers one by one for shape arithmetic: integers wrap around, Div truncates towards zero and throws
/// Error(invalid_argument) on a zero divisor. Sum and Mean take floats only.
class BinaryOp final : public Op {
 public:
  BinaryOp(std::string_view type, BinaryKind k, std::size_t inputs) : kind(k), type_(type), inputs_(inputs) {}

  const BinaryKind kind;  ///< Sum and Mean: add
  /// Mean: the sum is divided by the number of inputs.
  bool mean() const { return type_ == "Mean"; }

  std::string_view type() const override { return type_; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  /// Of more than two inputs none: the first step's result would be written over one that is still to be read.
  bool may_overwrite(int input) const override { return inputs_ <= 2 && input < 2; }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  void run_cpu(const RunContext& context) const override;
  /// Integers may be divided on CUDA by constants only: what could be 0 is reported, and the CPU alone can do that.
  std::optional<std::string> refuse_cuda(std::span<const InputInfo> inputs) const override;
  void run_cuda(const CudaRun& run) const override;

 private:
  std::string_view type_;
  std::size_t inputs_;
};

}  // namespace lenslet
