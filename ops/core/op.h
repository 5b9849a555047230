#pragma once
// What an operator means: parsed attributes, types of the outputs, and how passes may move it about. How it is computed
// is a kernel's business (kernel.h).

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

/// An input as far as it is known before the run.
struct InputInfo {
  bool present = false;  ///< false: an optional input that was left out
  TensorType type;
  const Tensor* constant = nullptr;  ///< its value when known (format nchw), else null
};

/// What a node is built from: checked against the row of the op table before `make` is called.
struct NodeSpec {
  const AttributeList& attributes;
  std::int64_t opset = 0;               ///< of the node's domain
  std::size_t inputs = 0, outputs = 0;  ///< counts as written, trailing empty names cut
  std::string_view name = {};           ///< the row's, for makers of a whole family
  /// The attributes are what Op::attributes() gives, and mean that: `opset` decides nothing.
  bool normalised = false;

  /// Is this the form that operators had before version `version`?
  bool before(std::int64_t version) const { return !normalised && opset < version; }
};

/// y = factor[c] * x + offset[c] along the output's axis 1.
struct ChannelAffine {
  std::vector<double> factor, offset;
};

/// An operator on inputs whose axes stand in another order.
struct PermutedOp {
  /// One that it reads.
  struct Input {
    std::size_t number = 0;  ///< among the old inputs
    bool permuted = true;    ///< in the new order, axes that it lacks put in front with size 1; else as it was
    Tensor instead = {};     ///< not empty(): these values
  };
  std::shared_ptr<const Op> op;  ///< null: the operator as it is
  std::vector<Input> inputs;
  bool same_result = false;  ///< its output is what it was; else it is in the new order, too
};

/// An operator whose filter is input 1, [K,C/groups,spatial axes], with a part of its taps: [begins, ends) of each
/// spatial axis.
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
  /// Normalised attributes: everything that decides the result, with defaults filled in, independent of the opset. The
  /// row's maker takes them back (NodeSpec::normalised).
  virtual AttributeList attributes() const { return {}; }

  /// Types of the outputs. All input shapes are concrete. Throws Error(invalid_model | unsupported). Callers want
  /// infer_types(), which also checks that some kernel computes these element types.
  virtual std::vector<TensorType> infer(std::span<const InputInfo> inputs) const = 0;
  virtual double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const;
  /// The problem that these inputs pose, in words, for operators with a choice of kernels: "1x64x56x56 -> 64, 3x3 s1 p1
  /// g1 +bias +relu". Empty: the types say it all.
  virtual std::string describe(std::span<const InputInfo> inputs) const;

  /// Elementwise: each element of the outputs is the same function of the elements at its own place of the first so
  /// many inputs, which broadcast against each other, wherever that place is; inputs that follow are parameters, and
  /// lie along no axis. 0: it is not. axis_map() and permuted() need no answer of their own then.
  virtual std::size_t elementwise_inputs() const { return 0; }
  static constexpr std::size_t any_number = ~std::size_t{0};
  /// Which axes of an output of this shape follow which axes of the inputs; nothing when that cannot be said in axes.
  virtual std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& output) const;
  /// The same where axis `i` of input 0, and of every other input that is laid out like it, is axis to[i] now; of
  /// elementwise operators, axis `i` of the output. Nothing when the operator cannot be written so.
  virtual std::optional<PermutedOp> permuted(std::span<const int> to, std::span<const InputInfo> inputs) const;

  /// Output 0 holds the bytes of this input as they lie, under another shape or format (Reshape, Identity, Relabel
  /// ...): no kernel needs to run. -1: no.
  virtual int alias_input() const { return -1; }
  /// Output 0 is input 0 unchanged, of the same type, for these inputs; no other output is wanted.
  virtual bool gives_input_back(std::span<const InputInfo> inputs) const;
  /// The result follows from the types of the inputs (Shape, Size), whatever they hold.
  virtual bool reads_only_types() const { return false; }

  /// What follows the sums of a product; null for operators that are none.
  virtual const Epilogue* epilogue() const { return nullptr; }
  /// The operator with another epilogue. Only where there is one.
  virtual std::shared_ptr<const Op> with_epilogue(Epilogue changed) const;
  /// The activation that this operator is on a float32 input, when its bounds are known: for fusing it into a producer.
  virtual std::optional<Activation> as_activation(std::span<const InputInfo> inputs) const;
  /// What it does to a float32 input `side` of C channels (axis 1) when everything else is known: for folding.
  virtual std::optional<ChannelAffine> as_channel_affine(std::span<const InputInfo> inputs, std::size_t side,
                                                         const Shape& output) const;

  /// Zeros that the operator imagines around the spatial axes of input 0, resolved: begins of all axes, then ends.
  virtual std::optional<std::vector<std::int64_t>> imagined_zeros(std::span<const InputInfo> inputs) const;
  /// The same operator imagining these instead. Only where imagined_zeros() says something.
  virtual std::shared_ptr<const Op> imagining_zeros(std::vector<std::int64_t> pads) const;
  /// Zeros that the operator puts around the spatial axes of input 0 and that are all it does: begins, then ends.
  virtual std::optional<std::vector<std::int64_t>> added_zeros(std::span<const InputInfo> inputs) const;
  /// The operator without the outer taps of its filter that meet nothing but imagined zeros. Nothing where all are
  /// wanted.
  virtual std::optional<CroppedFilter> without_idle_taps(std::span<const InputInfo> inputs) const;
};

/// Error(unsupported) "input 0 has element type float16 (supported: float32, int64)" unless some device's kernel takes
/// the element type.
void require_input_type(const Op& op, std::span<const InputInfo> inputs);
/// Types of the outputs: Op::infer, after that check.
std::vector<TensorType> infer_types(const Op& op, std::span<const InputInfo> inputs);

/// One of the normalised attributes; nothing when there is none of that name and kind.
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

/// How an operator is made and computed: what its file gives to the row.
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

/// An operator of the table, made as the loader makes it, or of normalised attributes. Error(internal): no such row.
std::shared_ptr<const Op> make_op(std::string_view name, std::string_view domain, const AttributeList& attributes,
                                  std::size_t inputs, std::size_t outputs = 1, std::int64_t opset = 13);
std::shared_ptr<const Op> make_normalised_op(std::string_view name, const AttributeList& attributes, std::size_t inputs,
                                             std::size_t outputs = 1);
/// `op` with some of its normalised attributes changed or added.
std::shared_ptr<const Op> with_attributes(const Op& op, const AttributeList& changed, std::size_t inputs,
                                          std::size_t outputs = 1);

}  // namespace lenslet
