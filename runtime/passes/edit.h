#pragma once
// Helpers for passes that rewrite a graph node by node.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/graph/graph.h"

namespace lenslet {

/// A graph's producers and use counts, kept current through edits. Erased nodes stay in the list (with no op) until
/// finish(), so that node ids stay valid during a pass.
class GraphEdit {
 public:
  explicit GraphEdit(Graph& graph);

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  /// no_id for graph inputs, constants and no_id.
  NodeId producer(ValueId id) const { return id == no_id ? no_id : producers_[static_cast<std::size_t>(id)]; }
  /// The producer as a node, or null.
  const Node* producer_node(ValueId id) const;
  /// The producer if it is of this operator, or null.
  const Node* made_by(ValueId id, std::string_view type) const;
  /// Reads by nodes (a node that reads twice counts twice) plus one if the value is a graph output.
  int uses(ValueId id) const { return uses_[static_cast<std::size_t>(id)]; }
  /// Made by a node, read exactly once, and no graph output: may be merged into its reader.
  bool merges(ValueId id) const { return producer(id) != no_id && uses(id) == 1 && !outputs_[std::size_t(id)]; }
  bool is_output(ValueId id) const { return outputs_[static_cast<std::size_t>(id)]; }
  /// All nodes, in order, erased ones included.
  std::vector<NodeId> nodes() const;
  bool erased(NodeId node) const { return graph_.node(node).op == nullptr; }

  /// Replaces op and inputs of a node; its outputs stay.
  void replace(NodeId node, std::shared_ptr<const Op> op, std::vector<ValueId> inputs);
  /// Makes the node produce these values, whose producers are erased, instead of its own.
  void set_outputs(NodeId node, std::vector<ValueId> outputs);
  void erase(NodeId node);
  /// Erases the nodes above `id` that nothing reads any more.
  void erase_unread(ValueId id);
  /// Appends a node with one new output, typed by its operator; finish() moves it to where its readers find it.
  ValueId add_node(std::string name, std::shared_ptr<const Op> op, std::vector<ValueId> inputs);
  /// The same for a value that the file would give `file_type` (Value::file_type).
  ValueId add_node(std::string name, std::shared_ptr<const Op> op, std::vector<ValueId> inputs, DType file_type);
  ValueId add_constant(std::string name, Tensor tensor);
  /// A constant int64 tensor of one axis: of a Reshape, for instance.
  ValueId add_sizes(std::string name, std::span<const std::int64_t> sizes);
  /// Adds a value of `model`'s type, without producer yet.
  ValueId add_value_like(std::string name, const Value& model);
  /// Removes the erased nodes, and puts added ones behind what they read.
  void finish();

 private:
  void grow();
  Graph& graph_;
  std::vector<NodeId> producers_;
  std::vector<int> uses_;
  std::vector<bool> outputs_;
  bool added_ = false;  ///< nodes at the end that are out of order
};

/// Input `i` of the node, or no_id.
inline ValueId input_of(const Node& node, std::size_t i) { return i < node.inputs.size() ? node.inputs[i] : no_id; }

/// Whether the result is the input's elements in their order: a Reshape, Squeeze, Identity ...
inline bool is_view(const Node& node) { return node.op->alias_input() == 0; }

/// Whether something may read the node's first result: of several, the first may be left out.
inline bool has_result(const Node& node) { return !node.outputs.empty() && node.outputs[0] != no_id; }

/// Selects this candidate of the node's chosen kernel. The choice must exist (not null); other nodes may share it.
void set_candidate(Node& node, Candidate candidate);

/// Removes nodes without op.
void remove_erased(Graph& graph);

/// The value of a constant f32 with a single element.
std::optional<float> scalar_constant(const Graph& graph, ValueId id);

}  // namespace lenslet
