#pragma once
// Builds an operator from the op table like the loader, and compares its kernels with the double-precision oracle in
// every way in which a plan may call them.

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
  std::int64_t opset = 13;  ///< 0: the attributes are normalised
  AttributeList attributes = {};
  std::vector<Tensor> inputs = {};  ///< format nchw; an empty Tensor is an omitted optional input
  std::size_t outputs = 1;
  std::vector<int> constant = {};        ///< inputs that must be constant (a shape, axes)
  std::vector<int> maybe_constant = {};  ///< inputs tried both as constants and as run-time values (weights)
  /// For each element of floating-point outputs: |y - exact| <= tolerance * oracle::scale_at(), or the kernel's own
  /// tolerance if that is smaller. 0: exactly the oracle's value, rounded once.
  double tolerance = 0;
  /// The same of kernels of 16-bit types that round between their sums; 0: `tolerance`.
  double half_tolerance = 0;
};

/// `c` with these inputs.
OpCase with(OpCase c, std::vector<Tensor> inputs, AttributeList attributes = {});

/// The operator of a case. Throws what the maker throws; Error(unsupported) if no row matches (name, opset, counts).
std::shared_ptr<const Op> make_op(const OpCase& c);

/// Output types, with the inputs in `constant` known.
std::vector<TensorType> infer_op(const OpCase& c);
/// infer_op's refusal of a case; empty if it accepts.
std::string refusal(const OpCase& c);
/// The kind of infer_op's error; fails the test if there is none.
ErrorKind infer_error(const OpCase& c);

/// Runs the first candidate with one thread, for tests with hand-written expectations. Format nchw. A case that CUDA
/// refuses for an allowed reason runs on the CPU.
std::vector<Tensor> run_op(const OpCase& c);

/// Runs every kernel and candidate that accepts; with 1 and 2 threads; with `maybe_constant` inputs constant and not;
/// into fresh memory and over each input that may be overwritten (run_between_guards). Compares each result with the
/// oracle's; a failure reports case, call, worst index and both values. On the CPU it also checks the operator's
/// declarations (op_meaning.h). All of it is repeated with float32 inputs in float16 and bfloat16, by the kernels that
/// accept these. A case without a kernel fails, except on CUDA with a row in op_harness.cpp for the reason; that is
/// checked without a device, too.
void check_op(const OpCase& c);
/// The same with every instruction set of this CPU. Devices have none. Skipped in runs for lesser ones, like
/// for_each_target().
void check_op_on_every_instruction_set(const OpCase& c);

/// Unsigned types, including bool.
bool is_unsigned(DType dtype);
/// Uniform random values of any type in [low, high], converted to `dtype`.
Tensor random_of(DType dtype, Shape shape, unsigned seed, double low, double high);
/// 1-D int64, for shapes and axes.
Tensor int64s(std::initializer_list<std::int64_t> values);
Tensor int64_scalar(std::int64_t value);

}  // namespace lenslet::test
