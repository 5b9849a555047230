// fuse_windows: a partition into windows, Attention in each and the way back (Swin) become Attention over rows that a
// table names. Projections, residuals and activations between the moves see the image as it lies, and so they fuse.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm/attention_op.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/row_moves.h"

namespace lenslet {
namespace {

/// A node that makes each row of its result of the same row of one input.
struct RowStep {
  NodeId node = no_id;
  std::size_t input = 0;
};

/// What lies between two moves of rows, from the last node to the first. `attention` is one of them.
struct Chain {
  std::vector<RowStep> steps;
  NodeId attention = no_id;
  ValueId x = no_id;  ///< that the first reads
};

class Windows {
 public:
  explicit Windows(Graph& graph) : graph_(graph), edit_(graph) {}

  void run() {
    if (std::ranges::none_of(edit_.nodes(), [&](NodeId id) { return in_rows(graph_.node(id)) != nullptr; })) return;
    // The last of the steps that move rows.
    std::vector<NodeId> ends;
    std::vector<bool> moved(graph_.values.size());
    for (const NodeId id : edit_.nodes()) {
      if (!moves_.is_step(graph_.node(id))) continue;
      for (const ValueId input : graph_.node(id).inputs)
        if (input != no_id) moved[static_cast<std::size_t>(input)] = true;
      ends.push_back(id);
    }
    for (std::size_t i = ends.size(); i-- > 0 && !moves_.done();) {
      const Node& node = graph_.node(ends[i]);
      if (node.op != nullptr && node.outputs.size() == 1 && !moved[static_cast<std::size_t>(node.outputs[0])])
        join(ends[i]);
    }
    edit_.finish();
  }

 private:
  const Shape& shape_of(ValueId id) const { return graph_.value(id).shape; }
  std::int64_t channels(ValueId id) const {
    const Shape& shape = shape_of(id);
    return shape.rank() == 0 ? 0 : shape[shape.rank() - 1];
  }
  std::int64_t rows(ValueId id) const { return shape_of(id).elems() / std::max<std::int64_t>(channels(id), 1); }

  /// The problem of an Attention of one input whose rows, and those of its result, are tokens of all heads; or null.
  const AttentionProblem* in_rows(const Node& node) const {
    if (node.op == nullptr || node.type() != "Attention") return nullptr;
    const auto& stated = static_cast<const AttentionOp&>(*node.op).stated();
    if (!stated || input_of(node, AttentionOp::k) != no_id || input_of(node, AttentionOp::v) != no_id ||
        input_of(node, AttentionOp::rows) != no_id || stated->queries != stated->keys)
      return nullptr;
    const std::int64_t row = channels(node.inputs[AttentionOp::q]);
    const auto lies_in = [&](const AttentionOperand& o, std::int64_t width, std::int64_t size) {
      return o.token == width && o.batch == stated->queries * width &&
             o.offset + (stated->heads - 1) * o.head + size <= width;
    };
    const std::int64_t tokens = stated->n * stated->queries, d = stated->head_size, e = stated->value_size;
    const bool fits = lies_in(stated->q, row, d) && lies_in(stated->k, row, d) && lies_in(stated->v, row, e) &&
                      lies_in(stated->y, stated->heads * e, e) && rows(node.inputs[AttentionOp::q]) == tokens;
    return fits ? &*stated : nullptr;
  }

  /// The input that a node makes its rows of, or nothing. Of other inputs all rows take the same.
  std::optional<std::size_t> row_input(const Node& node) const {
    if (node.type() == "MatMul") {
      const bool projects = graph_.value(node.inputs[1]).is_constant() && shape_of(node.inputs[1]).rank() == 2;
      return projects ? std::optional<std::size_t>(0) : std::nullopt;
    }
    if (node.op->elementwise_inputs() == 0 && node.type() != "LayerNormalization") return std::nullopt;
    if (node.outputs.size() != 1 || integer_attribute(*node.op, "axis").value_or(-1) != -1) return std::nullopt;
    const auto variable = [&](ValueId id) { return id != no_id && !graph_.value(id).is_constant(); };
    const auto found = std::ranges::find_if(node.inputs, variable);
    if (found == node.inputs.end() || std::any_of(found + 1, node.inputs.end(), variable)) return std::nullopt;
    const auto x = static_cast<std::size_t>(found - node.inputs.begin());
    const Shape& y = shape_of(node.outputs[0]);
    const auto map = node.op->axis_map(graph_.input_infos(node), y);
    if (!map || y.rank() < 2 || shape_of(*found).rank() != y.rank() || rows(*found) != rows(node.outputs[0]))
      return std::nullopt;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const AxisMap::Followed& followed = map->inputs[i];
      if (node.inputs[i] == no_id || (followed.parameter && i != x)) continue;
      for (int axis = 0; axis + 1 < y.rank(); ++axis) {
        const auto at = static_cast<std::size_t>(axis);
        if (i == x ? followed.axis[at] != axis : !followed.stretched[at]) return std::nullopt;
      }
    }
    return x;
  }

  static bool is_view(const Node& node) { return node.op->alias_input() == 0; }

  /// Up from `id`, whose reads are `reads`, through nodes of rows that nothing else reads.
  Chain chain_above(ValueId id, int reads) const {
    Chain chain;
    for (;; reads = 1) {
      const Node* const node = edit_.uses(id) == reads ? edit_.producer_node(id) : nullptr;
      std::optional<std::size_t> input;
      if (node != nullptr && in_rows(*node) != nullptr && chain.attention == no_id) {
        chain.attention = edit_.producer(id);
        input = AttentionOp::q;
      } else if (node != nullptr && is_view(*node) && channels(node->inputs[0]) == channels(id)) {
        input = 0;
      } else if (node != nullptr) {
        input = row_input(*node);
      }
      if (!input) break;
      chain.steps.push_back({edit_.producer(id), *input});
      id = node->inputs[*input];
    }
    chain.x = id;
    return chain;
  }

  /// The rows of a move as rows of tokens of so many channels; empty where it cuts them.
  static std::vector<std::int32_t> of_tokens(const RowMove& move, std::int64_t channels) {
    if (move.row % channels != 0) return {};
    const auto each = static_cast<std::int32_t>(move.row / channels);
    std::vector<std::int32_t> table;
    for (const std::int32_t row : move.table)
      for (std::int32_t i = 0; i < each; ++i) table.push_back(row * each + i);
    return table;
  }

  int reads_by(const RowMove& move) const {
    int reads = 0;
    for (const NodeId step : move.steps)
      reads += static_cast<int>(std::ranges::count(graph_.node(step).inputs, move.x));
    return reads;
  }

  void join(NodeId end) {
    const auto back = moves_.ending_at(end, 1, 0);
    if (!back) return;
    const ValueId y = graph_.node(end).outputs[0];
    const Chain chain = chain_above(back->x, reads_by(*back));
    if (chain.attention == no_id || edit_.uses(chain.x) != 1 || edit_.producer(chain.x) == no_id) return;
    const auto there = moves_.ending_at(edit_.producer(chain.x), 1, 0);
    if (!there || there->images != back->images || channels(there->x) != channels(chain.x) ||
        channels(y) != channels(back->x))
      return;
    const auto leading = [&](ValueId id) {
      return shape_of(id).dims().first(static_cast<std::size_t>(shape_of(id).rank() - 1));
    };
    const std::vector<std::int32_t> rows = of_tokens(*there, channels(chain.x)),
                                    home = of_tokens(*back, channels(back->x));
    const AttentionProblem& p = *in_rows(graph_.node(chain.attention));
    const auto tokens = std::ssize(rows);
    if (rows.empty() || rows.size() != home.size() || !std::ranges::equal(leading(there->x), leading(y)) ||
        tokens % p.queries != 0 || tokens * there->images != p.n * p.queries)
      return;
    for (std::size_t i = 0; i < home.size(); ++i)
      if (rows[static_cast<std::size_t>(home[i])] != static_cast<std::int32_t>(i)) return;
    if (!broadcast(chain, shape_of(y).rank())) return;
    replace(end, chain, there->x, rows);
  }

  /// Whether the known operands fit results of this rank.
  bool broadcast(const Chain& chain, int rank) const {
    return std::ranges::all_of(chain.steps, [&](const RowStep& step) {
      const Node& node = graph_.node(step.node);
      if (is_view(node) || step.node == chain.attention) return true;
      return std::ranges::none_of(node.inputs, [&](ValueId id) {
        return id != no_id && graph_.value(id).is_constant() && shape_of(id).rank() > rank;
      });
    });
  }

  /// Computes what `end` gives of rows as they lie in x.
  void replace(NodeId end, const Chain& chain, ValueId x, const std::vector<std::int32_t>& table) {
    for (std::size_t i = chain.steps.size(); i-- > 0;) {
      const Node node = graph_.node(chain.steps[i].node);  // copied: nodes are added
      if (is_view(node)) continue;
      std::shared_ptr<const Op> op = node.op;
      std::vector<ValueId> inputs = node.inputs;
      inputs[chain.steps[i].input] = x;
      if (chain.steps[i].node == chain.attention) {
        const AttentionProblem& p = *in_rows(node);
        const Shape shape{std::ssize(table) / p.queries, p.queries};
        inputs.resize(AttentionOp::rows + 1, no_id);
        inputs[AttentionOp::rows] =
            edit_.add_constant(node.name + ":rows", Tensor::of<std::int32_t>(shape, std::span(table)));
        op = make_attention_op(p, shape_of(x).with(shape_of(x).rank() - 1, p.heads * p.value_size));
      }
      x = edit_.add_node(node.name, std::move(op), std::move(inputs), graph_.value(node.outputs[0]).file_type);
    }
    const ValueId y = graph_.node(end).outputs[0];
    const std::vector<ValueId> old = graph_.node(end).inputs;
    edit_.erase(end);
    edit_.set_outputs(edit_.producer(x), {y});
    for (const ValueId id : old) edit_.erase_unread(id);
  }

  Graph& graph_;
  GraphEdit edit_;
  RowMoves moves_{edit_};
};

}  // namespace

void fuse_windows(Graph& graph, const PassContext&) { Windows(graph).run(); }

}  // namespace lenslet
