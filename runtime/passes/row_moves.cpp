#include "runtime/passes/row_moves.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/graph/evaluate.h"

namespace lenslet {
namespace {

constexpr std::size_t most_steps = 64;                            // of a group
constexpr std::int64_t most_image_elems = std::int64_t{8} << 20;  // of a value, for one image
constexpr std::int64_t elems_of_a_step = std::int64_t{64} << 10;  // what an evaluation costs besides
constexpr std::int64_t most_table_rows = std::int64_t{4} << 20;   // 16 MiB of int32

/// The leading inputs of a step that hold elements, not sizes or indices.
std::span<const ValueId> data_of(const Node& node) {
  return std::span(node.inputs).first(node.type() == "Concat" ? node.inputs.size() : 1);
}

}  // namespace

bool RowMoves::is_step(const Node& node) const {
  if (node.op == nullptr || node.inputs.empty()) return false;
  const auto type = node.type();
  if (!is_view(node) && type != "Slice" && type != "Concat" && type != "Transpose" && type != "Split" &&
      type != "Gather")
    return false;
  if (type == "Transpose" && !keeps_innermost(node)) return false;
  const auto data = data_of(node);
  const DType dtype = graph_.value(data[0]).dtype;
  const auto plain = [&](ValueId id) {
    const Value& value = graph_.value(id);
    return value.format == formats::nchw && value.part.whole == no_id && value.dtype == dtype &&
           value.shape.elems() > 0;
  };
  const auto known = [&](ValueId id) { return id == no_id || graph_.value(id).is_constant(); };
  return std::ranges::none_of(data, known) && std::ranges::all_of(data, plain) &&
         std::all_of(node.inputs.begin() + std::ssize(data), node.inputs.end(), known) &&
         std::ranges::all_of(node.outputs, [&](ValueId id) { return id == no_id || plain(id); });
}

/// Else it leaves no rows.
bool RowMoves::keeps_innermost(const Node& transpose) const {
  const Shape& y = graph_.value(transpose.outputs[0]).shape;
  const int last = y.rank() - 1;
  return last < 0 ||
         transpose.op->axis_map(graph_.input_infos(transpose), y)->inputs[0].axis[static_cast<std::size_t>(last)] ==
             last;
}

std::optional<RowMove> RowMoves::ending_at(NodeId end, int least_copies, std::int64_t least_bytes) {
  if (done() || !is_step(graph_.node(end)) || graph_.node(end).outputs.size() != 1) return std::nullopt;
  const ValueId y = graph_.node(end).outputs[0];
  std::vector<NodeId> group;
  std::map<ValueId, int> outside;                     // values that it reads, with the number of reads
  std::vector<std::pair<std::size_t, ValueId>> ends;  // the size of a group that reads one value, and that value
  int copies = 0;
  for (NodeId next = end; next != no_id;) {
    group.push_back(next);
    for (const ValueId id : graph_.node(next).outputs) outside.erase(id);
    for (const ValueId id : data_of(graph_.node(next))) ++outside[id];
    if (!is_view(graph_.node(next))) ++copies;
    if (outside.size() == 1 && copies >= least_copies) ends.emplace_back(group.size(), outside.begin()->first);
    next = no_id;
    if (group.size() == most_steps) break;
    for (const auto& [id, reads] : outside)
      if (edit_.producer(id) > next && read_by(outside, edit_.producer(id))) next = edit_.producer(id);
  }
  for (; !ends.empty(); ends.pop_back())
    if (auto move = rows_of(std::span(group).first(ends.back().first), ends.back().second, y);
        move && move->row * static_cast<std::int64_t>(dtype_bytes(graph_.value(y).dtype)) >= least_bytes)
      return move;
  return std::nullopt;
}

/// A step whose results have no other readers.
bool RowMoves::read_by(const std::map<ValueId, int>& outside, NodeId id) const {
  const Node& node = graph_.node(id);
  return is_step(node) && std::ranges::all_of(node.outputs, [&](ValueId output) {
           const auto found = outside.find(output);
           return output == no_id || edit_.uses(output) == (found == outside.end() ? 0 : found->second);
         });
}

/// The count of equal parts of the outermost axis that all steps keep apart: images, mostly.
std::int64_t RowMoves::images_of(std::span<const NodeId> group) const {
  std::int64_t images = 0;
  for (const NodeId id : group) {
    const Node& node = graph_.node(id);
    if (is_view(node)) continue;
    const std::vector<InputInfo> infos = graph_.input_infos(node);
    for (const ValueId output : node.outputs) {
      if (output == no_id) continue;
      const Shape& shape = graph_.value(output).shape;
      const std::optional<AxisMap> map = shape.rank() > 0 ? node.op->axis_map(infos, shape) : std::nullopt;
      for (std::size_t i = 0; i < data_of(node).size(); ++i)
        if (!map || map->inputs[i].axis[0] != 0) return 1;
      images = std::gcd(images, shape[0]);
    }
  }
  return images;
}

std::optional<RowMove> RowMoves::rows_of(std::span<const NodeId> group, ValueId x, ValueId y) {
  RowMove rows{.steps = {group.begin(), group.end()}, .x = x, .images = images_of(group)};
  const auto one_image = [&](ValueId id) {
    const Shape& shape = graph_.value(id).shape;
    return rows.images == 1 ? shape : shape.with(0, shape[0] / rows.images);
  };
  std::map<ValueId, Tensor> moved;
  const std::int64_t x_elems = graph_.value(x).shape.elems() / rows.images;
  elems_left_ -= x_elems;
  if (x_elems > most_image_elems || elems_left_ <= 0) return std::nullopt;
  Tensor& first = moved[x] = Tensor(DType::i32, {x_elems});
  std::iota(first.values<std::int32_t>().begin(), first.values<std::int32_t>().end(), 0);
  for (std::size_t n = group.size(); n-- > 0;) {
    const Node& node = graph_.node(group[n]);
    if (is_view(node)) {
      moved[node.outputs[0]] = moved.at(node.inputs[0]);
      continue;
    }
    std::vector<Tensor> inputs;
    for (const ValueId id : data_of(node)) inputs.push_back(moved.at(id).reshaped(one_image(id)));
    for (std::size_t i = inputs.size(); i < node.inputs.size(); ++i)
      inputs.push_back(node.inputs[i] == no_id ? Tensor() : graph_.value(node.inputs[i]).constant);
    const std::vector<TensorType> types = node.op->infer(infos_of(inputs));
    for (const TensorType& type : types) {
      if (type.shape.elems() > most_image_elems) return std::nullopt;
      elems_left_ -= type.shape.elems() + elems_of_a_step;
    }
    if (elems_left_ <= 0) return std::nullopt;
    std::vector<Tensor> results = evaluate(node.op, inputs, types, pool_);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == no_id) continue;
      if (!(types[i].shape == one_image(node.outputs[i]))) return std::nullopt;
      moved[node.outputs[i]] = std::move(results[i]);
    }
  }
  // The longest rows that no step ends.
  const auto from = std::as_const(moved.at(y)).values<std::int32_t>();
  rows.row = std::gcd(x_elems, std::ssize(from));
  for (std::size_t i = 0; i < from.size(); ++i)
    if (i == 0 || from[i] != from[i - 1] + 1)
      rows.row = std::gcd(std::gcd(rows.row, static_cast<std::int64_t>(i)), std::int64_t{from[i]});
  rows.x_rows = x_elems / rows.row;
  if (std::ssize(from) / rows.row > most_table_rows) return std::nullopt;
  for (std::size_t i = 0; i < from.size(); i += static_cast<std::size_t>(rows.row))
    rows.table.push_back(static_cast<std::int32_t>(from[i] / rows.row));
  return rows;
}

}  // namespace lenslet
