#pragma once
// An operator's meaning: parsed attributes, output types, and how passes may transform it. Kernels compute it
// (kernel.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/attributes.h"
#include "lenslet/error.h"
#include "lenslet/tensor.h"
#include "ops/core/activation.h"
#include "ops/core/attribute_reader.h"
#include "ops/core/axis_map.h"
#include "ops/core/epilogue.h"

namespace lenslet {

class Op;
class Kernel;
struct SimpleKernel;

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// What is known of an input before the run.
struct InputInfo {
  bool present = false;  ///< false: an optional input that was left out
  TensorType type;
  const Tensor* constant = nullptr;  ///< its value when known (format nchw), else null
};

/// What a node is built from, checked against its row of the op table before `make` is called.
struct NodeSpec {
  const AttributeList& attributes;
  std::int64_t opset = 0;               ///< of the node's domain
  std::size_t inputs = 0, outputs = 0;  ///< counts in the file, without trailing empty names
  std::string_view name = {};           ///< the row's, for makers of a whole family
  /// The attributes are in the form of Op::attributes(); `opset` has no meaning.
  bool normalised = false;

  /// True if the node has the form from before version `version`.
  bool before(std::int64_t version) const { return !normalised && opset < version; }
};

/// y = factor[c] * x + offset[c] along the output's axis 1.
struct ChannelAffine {
  std::vector<double> factor, offset;
};

/// An operator rewritten for inputs with permuted axes.
struct PermutedOp {
  /// One of its inputs.
  struct Input {
    std::size_t number = 0;  ///< among the old inputs
    bool permuted = true;    ///< in the new order, axes that it lacks put in front with size 1; else as it was
    Tensor instead = {};     ///< not empty(): these values
  };
  std::shared_ptr<const Op> op;  ///< null: the operator as it is
  std::vector<Input> inputs;
  bool same_result = false;  ///< its output is what it was; else it is in the new order, too
};

/// An operator whose filter, input 1 [K,C/groups,spatial axes], keeps only taps [begins, ends) of each spatial axis.
struct CroppedFilter {
  std::shared_ptr<const Op> op;
  std::vector<std::int64_t> begins, ends;
};

/// Immutable after construction; shared by graphs, plans and threads.
class Op {
 public:
  virtual ~Op() = default;

  /// The operator's name as in the op table ("Conv").
  virtual std::string_view type() const = 0;
  /// Normalised attributes: all that decide the result, defaults filled in, independent of the opset. The row's `make`
  /// accepts them (NodeSpec::normalised).
  virtual AttributeList attributes() const { return {}; }

  /// Types of the outputs, from concrete input shapes. Throws Error(invalid_model | unsupported). Call infer_types()
  /// instead, which also checks that some kernel supports the element types.
  virtual std::vector<TensorType> infer(std::span<const InputInfo> inputs) const = 0;
  virtual double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const;
  /// The problem in words, for operators with several kernels: "1x64x56x56 -> 64, 3x3 s1 p1 g1 +bias +relu". Empty: the
  /// types say it all.
  virtual std::string describe(std::span<const InputInfo> inputs) const;

  /// Elementwise operators: the number of leading inputs that broadcast against each other. Each output element is one
  /// function of their elements at its index; later inputs are parameters that lie along no axis. 0: not elementwise.
  /// axis_map() and permuted() then have working defaults.
  virtual std::size_t elementwise_inputs() const { return 0; }
  static constexpr std::size_t any_number = ~std::size_t{0};
  /// Which output axes follow which input axes, for an output of this shape; nothing when axes cannot express it.
  virtual std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& output) const;
  /// The same operator when axis `i` of input 0, and of all inputs laid out like it, becomes axis to[i] (elementwise:
  /// axis `i` of the output). Nothing when no such operator exists.
  virtual std::optional<PermutedOp> permuted(std::span<const int> to, std::span<const InputInfo> inputs) const;

  /// The input whose bytes output 0 shares under another shape or format (Reshape, Identity, Relabel ...): no kernel
  /// runs. -1: none.
  virtual int alias_input() const { return -1; }
  /// For these inputs, output 0 equals input 0 in value and type, and no other output is wanted.
  virtual bool gives_input_back(std::span<const InputInfo> inputs) const;
  /// The result depends only on the types of the inputs (Shape, Size).
  virtual bool reads_only_types() const { return false; }

  /// The epilogue of a matrix product; null for other operators.
  virtual const Epilogue* epilogue() const { return nullptr; }
  /// The operator with another epilogue, or null if it cannot have that; call only if epilogue() is not null.
  virtual std::shared_ptr<const Op> with_epilogue(Epilogue changed) const;
  /// The equivalent activation of a float32 input when its bounds are known: for fusion into a producer.
  virtual std::optional<Activation> as_activation(std::span<const InputInfo> inputs) const;
  /// Its effect on float32 input `side` of C channels (axis 1) when all else is known: for folding.
  virtual std::optional<ChannelAffine> as_channel_affine(std::span<const InputInfo> inputs, std::size_t side,
                                                         const Shape& output) const;

  /// Implicit zero padding of the spatial axes of input 0, resolved: begins of all axes, then ends.
  virtual std::optional<std::vector<std::int64_t>> imagined_zeros(std::span<const InputInfo> inputs) const;
  /// The same operator with this padding. Only where imagined_zeros() has a value.
  virtual std::shared_ptr<const Op> imagining_zeros(std::vector<std::int64_t> pads) const;
  /// The explicit zero padding of input 0's spatial axes, where that is all the operator does: begins, then ends.
  virtual std::optional<std::vector<std::int64_t>> added_zeros(std::span<const InputInfo> inputs) const;
  /// The operator without the outer filter taps that only read padding. Nothing when all taps are needed.
  virtual std::optional<CroppedFilter> without_idle_taps(std::span<const InputInfo> inputs) const;
};

/// Error(unsupported) "input 0 has element type float16 (supported: float32, int64)" unless a kernel of some device
/// supports the type.
void require_input_type(const Op& op, std::span<const InputInfo> inputs);
/// Types of the outputs: Op::infer, after that check.
std::vector<TensorType> infer_types(const Op& op, std::span<const InputInfo> inputs);

/// A normalised attribute; nothing when there is none of that name and kind.
template <typename T>
std::optional<T> attribute(const Op& op, std::string_view name) {
  for (const auto& [key, value] : op.attributes())
    if (key == name)
      if (const T* found = std::get_if<T>(&value)) return *found;
  return std::nullopt;
}
inline std::optional<std::vector<std::int64_t>> integers_attribute(const Op& op, std::string_view name) {
  return attribute<std::vector<std::int64_t>>(op, name);
}
inline std::optional<std::int64_t> integer_attribute(const Op& op, std::string_view name) {
  return attribute<std::int64_t>(op, name);
}

/// An operator's constructor and kernels, which its file gives to the row.
struct OpParts {
  std::shared_ptr<const Op> (*make)(const NodeSpec&) = nullptr;
  std::span<const SimpleKernel> kernels = {};  ///< the one of each device, where one is all there is
};

/// For OpParts::make: a class with a constructor from a NodeSpec.
template <typename T>
std::shared_ptr<const Op> make_from(const NodeSpec& spec) {
  return std::make_shared<T>(spec);
}
/// The same: a class without attributes.
template <typename T>
std::shared_ptr<const Op> make_plain(const NodeSpec& spec) {
  AttributeReader(spec).finish();
  return std::make_shared<T>();
}

/// One row of the op table.
struct OpRow {
  std::string_view name;
  std::string_view domain;             ///< "" is ai.onnx; "lenslet": our own
  int min_opset = 1;                   ///< first version of the op that `make` understands (read for opset >= 7 models)
  int min_inputs = 1, max_inputs = 1;  ///< max -1: any number
  int min_outputs = 1, max_outputs = 1;
  OpParts parts = {};
  std::string_view notes = {};  ///< limits of our support, for the table in docs/ops.md
};

/// All rows, in the order of the support matrix.
std::span<const OpRow> op_table();
/// Null when unknown.
const OpRow* find_op(std::string_view name, std::string_view domain);

/// Makes an operator as the loader does, or from normalised attributes. Error(internal) when no row has that name.
std::shared_ptr<const Op> make_op(std::string_view name, std::string_view domain, const AttributeList& attributes,
                                  std::size_t inputs, std::size_t outputs = 1, std::int64_t opset = 13);
std::shared_ptr<const Op> make_normalised_op(std::string_view name, const AttributeList& attributes, std::size_t inputs,
                                             std::size_t outputs = 1);
/// `op` with some of its normalised attributes changed or added.
std::shared_ptr<const Op> with_attributes(const Op& op, const AttributeList& changed, std::size_t inputs,
                                          std::size_t outputs = 1);

}  // namespace lenslet
