#pragma once
// The network as flat arrays addressed by index.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/format.h"
#include "lenslet/model.h"
#include "ops/core/choose.h"
#include "ops/core/op.h"

namespace lenslet {

using ValueId = std::int32_t;
using NodeId = std::int32_t;
inline constexpr std::int32_t no_id = -1;

/// The DequantizeLinear whose known result a constant is.
struct Dequantized {
  std::shared_ptr<const Op> op;
  std::vector<Tensor> inputs;  ///< codes, scale and, if there is one, zero point
};

struct Value {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;  ///< meaningful once `typed`
  bool typed = false;
  /// float16 or bfloat16 if the value has that type in the file and is float32 here (widen); else float32.
  DType file_type = DType::f32;
  Format format;    ///< nchw until formats are assigned
  Tensor constant;  ///< not empty(): the value is known (then it has no producer)
  /// Of some constants, until lower_quantized has run.
  std::shared_ptr<const Dequantized> dequantized = {};
  /// Its channel range within another value, which owns the memory; `format` has that value's pixel pitch.
  struct Part {
    ValueId whole = no_id;
    std::int64_t channel = 0;
  };
  Part part = {};

  bool is_constant() const { return !constant.empty(); }
  /// Bytes stored, once `typed`: for a part without the gaps between its pixels, else including the pixels' padding.
  std::size_t bytes() const {
    std::int64_t stored = shape.elems();
    if (part.whole == no_id && stored > 0) {
      stored = Strides(format, shape).stored;
      if (format.pixel_pitch != 0) stored += format.pixel_pitch - shape[1];
    }
    return static_cast<std::size_t>(stored) * dtype_bytes(dtype);
  }
};

struct Node {
  std::string name;  ///< never empty: the loader makes one up ("Conv_12")
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;   ///< no_id for an omitted optional input
  std::vector<ValueId> outputs;  ///< no_id for an unused output
  /// The chosen kernel and the candidate that runs, once decided.
  std::shared_ptr<const Choice> choice = {};
  /// What a pass has to say of it, for `inspect`: why it is not computed in 8 bits.
  std::string note = {};

  std::string_view type() const { return op->type(); }
  /// "node conv1 (Conv)", for Error contexts.
  std::string label() const;
};

/// Consecutive nodes that the CPU runs together, `rows` rows of the last one's output at a time. The others compute the
/// rows needed for these into strips that stay in the cache. Each node except the last has one reader, the next.
struct Band {
  NodeId first = no_id, last = no_id;
  std::int64_t rows = 0;             ///< of the last node's output, per piece
  std::vector<std::int64_t> strips;  ///< by node except the last: the most rows of its output needed at once
  std::string reason;
};

/// Nodes are in topological order, always. Copying a graph shares operators and constant data.
struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs, outputs;
  std::vector<PortInfo> input_ports, output_ports;  ///< as declared, same order
  std::vector<Band> bands;                          ///< disjoint, in order; once chosen

  ValueId add_value(std::string value_name);
  ValueId add_constant(std::string value_name, Tensor tensor);
  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<std::size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<std::size_t>(id)]; }
  Node& node(NodeId id) { return nodes[static_cast<std::size_t>(id)]; }

  /// Index of the node that makes `id`, or no_id. Linear time; frequent callers build `producers()` once.
  std::vector<NodeId> producers() const;
  /// For each value the nodes that read it, in order; a node that reads it twice is listed twice.
  std::vector<std::vector<NodeId>> readers() const;
  bool is_output(ValueId id) const;
  bool is_input(ValueId id) const;

  /// All readers and graph outputs of `from` use `to` instead.
  void replace_uses(ValueId from, ValueId to);
  /// Input infos of a node for Op::infer and the like; they point into this graph.
  std::vector<InputInfo> input_infos(const Node& node) const;
  /// For all outputs, including those that are no_id.
  std::vector<TensorType> output_types(const Node& node) const;

  /// Readable text, one line a node: outputs with type and format = op(inputs) attributes by kernel.
  std::string dump() const;
  /// Aborts by Error(internal) when an invariant is broken (order, ids, one producer a value).
  void check() const;
};

}  // namespace lenslet
