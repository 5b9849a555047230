#pragma once
// Builds an operator through the op table as the loader does and compares its kernels with the double-precision oracle
// in every way a plan may call them.

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/op.h"
#include "tests/tensors.h"

namespace lenslet::test {

struct OpCase {
  std::string op = {};
  std::string domain = {};
  std::int64_t opset = 13;
  AttributeList attributes = {};
  std::vector<Tensor> inputs = {};  ///< format nchw; an empty Tensor is an optional input that is left out
  std::size_t outputs = 1;
  std::vector<int> constant = {};        ///< inputs that the operator needs as constants (a shape, axes)
  std::vector<int> maybe_constant = {};  ///< inputs tried both as constants and as run-time values (weights)
  /// Of each element of floating-point outputs: |y - exact| <= tolerance * oracle::scale_at(), where what a kernel
  /// states is not less. 0: exactly the oracle's value, rounded once.
  double tolerance = 0;
};

/// `c` on these inputs.
OpCase with(OpCase c, std::vector<Tensor> inputs, AttributeList attributes = {});

/// The operator of a case. Throws what the maker throws; Error(unsupported) when no row fits (name, opset, counts).
std::shared_ptr<const Op> make_op(const OpCase& c);

/// Output types with the inputs named in `constant` known.
std::vector<TensorType> infer_op(const OpCase& c);
/// What infer_op says against a case, nothing where it takes it.
std::string refusal(const OpCase& c);
/// The error that infer_op ends with; that there is none fails the test.
ErrorKind infer_error(const OpCase& c);

/// Runs the first candidate that there is, with one thread: for tests with hand-written expectations. Format nchw.
/// What CUDA refuses, for a stated reason, is run on the CPU.
std::vector<Tensor> run_op(const OpCase& c);

/// Runs every kernel that takes it with every candidate; with 1 and 2 threads; with `maybe_constant` inputs constant
/// and not; into fresh memory and over each input it may be written over (run_between_guards). Each result is compared
/// with the oracle's; a failure says case, call, worst index and both values. On the CPU also what the operator says of
/// itself (op_meaning.h). All that once more with the case's float32 inputs in float16 and bfloat16, by the kernels
/// that take those. A case that no kernel takes fails; of CUDA's, unless op_harness.cpp has a row for the reason, which
/// builds with CUDA check without a device, too.
void check_op(const OpCase& c);
/// The same with the kernels of every instruction set that this CPU has. A device knows of none. Not in the runs for
/// lesser ones, as for_each_target().
void check_op_on_every_instruction_set(const OpCase& c);

/// Types without a sign, bool too.
bool is_unsigned(DType dtype);
/// Uniform random values of any type in [low, high], converted to `dtype`.
Tensor random_of(DType dtype, Shape shape, unsigned seed, double low, double high);
/// 1-D int64, as shapes and axes are given.
Tensor int64s(std::initializer_list<std::int64_t> values);
Tensor int64_scalar(std::int64_t value);

}  // namespace lenslet::test
