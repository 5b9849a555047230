// fuse_windows: a partition into windows, Attention in each and the way back (Swin) become Attention over rows that a
// table names. Projections, residuals and activations between the moves see the image as it lies, and so they fuse.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm/attention_op.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/row_moves.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

/// The nodes between two moves of rows: row i of each result depends on rows i of the operands alone.
struct Region {
  std::set<NodeId> nodes;
  ValueId x = no_id;  ///< that it reads
};

/// Between windows and the next partition (MaxViT), exporters join two Reshapes to one from six axes to six. It becomes
/// two again, so that the image [N,C,H,W] between them is seen.
void restore_images(Graph& graph) {
  GraphEdit edit(graph);
  const auto turned = [&](const Node* node, std::size_t channels, std::int64_t from) {
    const auto perm = node != nullptr ? integers_attribute(*node->op, "perm") : std::nullopt;
    return perm && node->type() == "Transpose" && perm->size() == 6 && perm->front() == 0 && (*perm)[channels] == from;
  };
  for (const NodeId id : edit.nodes()) {
    const Node& node = graph.node(id);
    if (!turned(&node, 5, 1) || !edit.merges(node.inputs[0])) continue;
    const NodeId reshape = edit.producer(node.inputs[0]);
    const ValueId windows = graph.node(reshape).inputs[0];
    if (graph.node(reshape).type() != "Reshape" || !edit.merges(windows) || !turned(edit.producer_node(windows), 1, 5))
      continue;
    const Shape from = graph.value(windows).shape, to = graph.value(node.inputs[0]).shape;
    const Shape image{from[0], from[1], from[2] * from[3], from[4] * from[5]};
    if (!(image == Shape{to[0], to[1], to[2] * to[3], to[4] * to[5]})) continue;
    const std::string name = graph.node(reshape).name;
    const ValueId whole =
        edit.add_node(name + ":whole", make_reshape_op(), {windows, edit.add_sizes(name + ":shape", image.dims())},
                      graph.value(windows).file_type);
    edit.replace(reshape, make_reshape_op(), {whole, edit.add_sizes(name + ":cut", to.dims())});
  }
  edit.finish();
}

/// [N,C,H,W] cut into windows whose channels go last in the same Transpose (MaxViT), as [N,H,W,C] cut into windows; and
/// the way back likewise. The turn alone is a change of format between convolutions, and the rest moves rows.
void turn_moves_apart(Graph& graph) {
  GraphEdit edit(graph);
  const auto shape_of = [&](ValueId id) { return graph.value(id).shape; };
  const auto first_dim_last = [](const Shape& shape) {  // [N,..,C] of [N,C,..]
    Integers dims(shape.dims().begin(), shape.dims().end());
    std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
    return Shape(dims);
  };
  const auto same_channels = [](const Shape& image, const Shape& cut) {
    return image.rank() == 4 && cut.rank() > 4 && image[0] == cut[0] && image[1] == cut[1];
  };
  for (const NodeId id : edit.nodes()) {
    const Node node = graph.node(id);  // copied: nodes are added
    if (node.type() == "Transpose" && edit.merges(node.inputs[0])) {
      const Node& reshape = *edit.producer_node(node.inputs[0]);
      const auto perm = integers_attribute(*node.op, "perm");
      const Shape cut = shape_of(node.inputs[0]);
      if (reshape.type() != "Reshape" || !perm || perm->empty() || perm->back() != 1 || perm->front() != 0 ||
          !same_channels(shape_of(reshape.inputs[0]), cut))
        continue;
      const DType type = graph.value(node.inputs[0]).file_type;
      const ValueId image =
          edit.add_node(node.name + ":channels_last", make_transpose_op(to_channels_last), {reshape.inputs[0]}, type);
      const ValueId sizes = edit.add_sizes(node.name + ":shape", first_dim_last(cut).dims());
      const ValueId windows = edit.add_node(node.name + ":image", make_reshape_op(), {image, sizes}, type);
      Integers rows;
      for (const std::int64_t axis : *perm) rows.push_back(axis == 0 ? 0 : axis == 1 ? cut.rank() - 1 : axis - 1);
      edit.replace(id, make_transpose_op(rows), {windows});
      edit.erase_unread(node.inputs[0]);
    } else if (node.type() == "Reshape" && edit.merges(node.inputs[0])) {
      const Node& turned = *edit.producer_node(node.inputs[0]);
      const auto perm = integers_attribute(*turned.op, "perm");
      const Shape cut = shape_of(node.inputs[0]), image = shape_of(node.outputs[0]);
      if (turned.type() != "Transpose" || !perm || perm->size() < 2 || (*perm)[0] != 0 ||
          (*perm)[1] != cut.rank() - 1 || !same_channels(image, cut))
        continue;
      const DType type = graph.value(node.inputs[0]).file_type;
      Integers rows = *perm;
      std::rotate(rows.begin() + 1, rows.begin() + 2, rows.end());
      const ValueId moved = edit.add_node(node.name + ":rows", make_transpose_op(rows), {turned.inputs[0]}, type);
      const ValueId sizes = edit.add_sizes(node.name + ":shape", first_dim_last(image).dims());
      const ValueId whole = edit.add_node(node.name + ":channels_last", make_reshape_op(), {moved, sizes}, type);
      edit.replace(id, make_transpose_op(to_channels_first), {whole});
      edit.erase_unread(node.inputs[0]);
    }
  }
  edit.finish();
}

class Windows {
 public:
  explicit Windows(Graph& graph) : graph_(graph), edit_(graph) {}

  bool has_attention() const {
    return std::ranges::any_of(edit_.nodes(), [&](NodeId id) { return in_rows(graph_.node(id)) != nullptr; });
  }

  void run() {
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
  int rank_of(ValueId id) const { return shape_of(id).rank(); }
  std::int64_t rows(ValueId id) const { return shape_of(id).elems() / std::max<std::int64_t>(channels(id), 1); }

  /// The problem of an Attention of one input whose rows, and those of its result, are tokens of all heads; or null.
  const AttentionProblem* in_rows(const Node& node) const {
    if (node.op == nullptr || node.type() != "Attention") return nullptr;
    const auto& stated = static_cast<const AttentionOp&>(*node.op).stated();
    if (!stated || stated->between_channels || input_of(node, AttentionOp::k) != no_id ||
        input_of(node, AttentionOp::v) != no_id || input_of(node, AttentionOp::rows) != no_id ||
        stated->queries != stated->keys)
      return nullptr;
    const std::int64_t row = channels(node.inputs[AttentionOp::q]);
    const auto lies_in = [&](const AttentionOperand& o, std::int64_t width, std::int64_t size) {
      return o.token == width && o.batch == stated->queries * width &&
             o.offset + (stated->heads - 1) * o.head + size <= width;
    };
    const std::int64_t tokens = stated->n * stated->queries, d = stated->head_size, e = stated->value_size;
    const bool fits = lies_in(stated->q, row, d) && lies_in(stated->k, row, d) && lies_in(stated->v, row, e) &&
                      lies_in(stated->y, stated->heads * e, e) && rows(node.inputs[AttentionOp::q]) == tokens &&
                      channels(node.outputs[0]) == stated->heads * e;
    return fits ? &*stated : nullptr;
  }

  /// The inputs whose rows i alone give row i of the result; none if the node mixes rows.
  std::vector<std::size_t> row_inputs(const Node& node) const {
    const ValueId y = node.outputs[0];
    if (in_rows(node) != nullptr || (is_view(node) && channels(node.inputs[0]) == channels(y))) return {0};
    if (node.type() == "MatMul") {
      const bool projects = graph_.value(node.inputs[1]).is_constant() && shape_of(node.inputs[1]).rank() == 2;
      return std::vector<std::size_t>(projects ? 1 : 0);
    }
    const bool normalises = node.type() == "LayerNormalization" || node.type() == "RMSNormalization";
    const int rank = shape_of(y).rank();
    const std::int64_t axis = integer_attribute(*node.op, "axis").value_or(-1);
    if ((node.op->elementwise_inputs() == 0 && !normalises) || node.outputs.size() != 1 ||
        (axis != -1 && !(normalises && axis == rank - 1)))
      return {};
    const auto map = node.op->axis_map(graph_.input_infos(node), shape_of(y));
    std::vector<std::size_t> list;
    for (std::size_t i = 0; i < node.inputs.size() && map; ++i) {
      const ValueId id = node.inputs[i];
      const AxisMap::Followed& followed = map->inputs[i];
      if (id == no_id) continue;
      const bool constant = graph_.value(id).is_constant();
      if (!constant) list.push_back(i);
      if (constant ? followed.parameter : shape_of(id) == shape_of(y)) continue;
      if (!constant) return {};
      for (std::size_t at = 0; at + 1 < static_cast<std::size_t>(rank); ++at)
        if (!followed.stretched[at]) return {};
    }
    return list;
  }

  /// Up from `y`, which is read `reads` times by the way back; nothing where others read what lies within.
  std::optional<Region> region_above(ValueId y, int reads) const {
    constexpr std::size_t most_nodes = 64;
    Region region;
    std::map<ValueId, int> read{{y, reads}};
    for (std::vector<ValueId> todo{y}; !todo.empty();) {
      const ValueId id = todo.back();
      todo.pop_back();
      const Node* const node = edit_.producer_node(id);
      const std::vector<std::size_t> inputs = node != nullptr ? row_inputs(*node) : std::vector<std::size_t>();
      if (inputs.empty()) {
        if (region.x != no_id && region.x != id) return std::nullopt;
        region.x = id;
      } else if (region.nodes.insert(edit_.producer(id)).second) {
        for (const std::size_t i : inputs) ++read[node->inputs[i]], todo.push_back(node->inputs[i]);
      }
      if (region.nodes.size() > most_nodes) return std::nullopt;
    }
    const bool alone =
        std::ranges::all_of(read, [&](const auto& count) { return edit_.uses(count.first) == count.second; });
    return alone && region.x != no_id ? std::optional(std::move(region)) : std::nullopt;
  }

  /// The table of a move in rows of one token, `channels` elements; empty if its rows are no whole tokens.
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
    const std::optional<Region> region = region_above(back->x, reads_by(*back));
    if (!region || edit_.producer(region->x) == no_id || !fits(*region, shape_of(y).rank())) return;
    const auto there = moves_.ending_at(edit_.producer(region->x), 1, 0);
    if (!there || there->images != back->images || channels(there->x) != channels(region->x) ||
        channels(y) != channels(back->x))
      return;
    const std::vector<std::int32_t> rows = of_tokens(*there, channels(region->x)),
                                    home = of_tokens(*back, channels(back->x));
    if (rows.empty() || rows.size() != home.size() ||
        !(shape_of(there->x).with(rank_of(there->x) - 1, channels(y)) == shape_of(y)))
      return;
    for (std::size_t i = 0; i < home.size(); ++i) {
      const auto at = static_cast<std::size_t>(home[i]);
      if (at >= rows.size() || rows[at] != static_cast<std::int32_t>(i)) return;
    }
    const auto in_images = [&](NodeId id) {
      const AttentionProblem* const p = in_rows(graph_.node(id));
      return p == nullptr || std::ssize(rows) % p->queries == 0;
    };
    if (std::ranges::all_of(region->nodes, in_images)) replace(end, *region, there->x, rows);
  }

  /// Whether there is an Attention, and known operands fit results of this rank.
  bool fits(const Region& region, int rank) const {
    bool attends = false;
    for (const NodeId id : region.nodes) {
      const Node& node = graph_.node(id);
      if (in_rows(node) != nullptr) {
        attends = true;
      } else if (!is_view(node)) {
        for (const ValueId input : node.inputs)
          if (input != no_id && graph_.value(input).is_constant() && rank_of(input) > rank) return false;
      }
    }
    return attends;
  }

  /// Computes what `end` gives of rows as they lie in x.
  void replace(NodeId end, const Region& region, ValueId x, const std::vector<std::int32_t>& table) {
    std::map<ValueId, ValueId> now{{region.x, x}};
    ValueId last = x;
    for (const NodeId id : region.nodes) {
      const Node node = graph_.node(id);  // copied: nodes are added
      if (is_view(node)) {
        last = now[node.outputs[0]] = now.at(node.inputs[0]);
        continue;
      }
      std::shared_ptr<const Op> op = node.op;
      std::vector<ValueId> inputs = node.inputs;
      for (ValueId& input : inputs)
        if (const auto found = now.find(input); found != now.end()) input = found->second;
      if (const AttentionProblem* const p = in_rows(node)) {
        const Shape shape{std::ssize(table) / p->queries, p->queries};
        inputs.resize(AttentionOp::rows + 1, no_id);
        inputs[AttentionOp::rows] =
            edit_.add_constant(node.name + ":rows", Tensor::of<std::int32_t>(shape, std::span(table)));
        op = make_attention_op(*p, shape_of(x).with(rank_of(x) - 1, p->heads * p->value_size));
      } else if (integer_attribute(*op, "axis").value_or(-1) != -1) {  // a last axis, and x may have another rank
        op = with_attributes(*op, {{"axis", std::int64_t{-1}}}, inputs.size());
      }
      last = now[node.outputs[0]] =
          edit_.add_node(node.name, std::move(op), std::move(inputs), graph_.value(node.outputs[0]).file_type);
    }
    const ValueId y = graph_.node(end).outputs[0];
    const std::vector<ValueId> old = graph_.node(end).inputs;
    edit_.erase(end);
    edit_.set_outputs(edit_.producer(last), {y});
    for (const ValueId id : old) edit_.erase_unread(id);
  }

  Graph& graph_;
  GraphEdit edit_;
  RowMoves moves_{edit_};
};

}  // namespace

void fuse_windows(Graph& graph, const PassContext&) {
  if (!Windows(graph).has_attention()) return;
  restore_images(graph);
  turn_moves_apart(graph);
  Windows(graph).run();
}

}  // namespace lenslet
