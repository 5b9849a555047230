// Step of lower_quantized: tables that only clamp and Pads before convolutions go, and convolutions read uint8.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/quantized/linear.h"

namespace lenslet {
namespace {

using Ints = std::vector<std::int64_t>;

/// The range to which the table clamps codes of [range[0], range[1]]; nothing if it does anything else.
std::optional<Ints> clamped_to(const Ints& table, bool is_signed, const Ints& range) {
  const auto at = [&](std::int64_t code) { return table[static_cast<std::uint8_t>(code)]; };
  const std::int64_t first = std::max<std::int64_t>(range[0], is_signed ? -128 : 0);
  const std::int64_t last = std::min<std::int64_t>(range[1], is_signed ? 127 : 255);
  if (first > last || at(first) > at(last)) return std::nullopt;
  for (std::int64_t code = first; code <= last; ++code)
    if (at(code) != std::clamp(code, at(first), at(last))) return std::nullopt;
  return Ints{at(first), at(last)};
}

void fold_table(GraphEdit& edit, NodeId id) {
  const Node table = edit.graph().node(id);
  const ValueId x = table.inputs[0];
  if (table.type() != "QuantizedTable" || !edit.merges(x)) return;
  const DType type = edit.graph().value(x).dtype;
  const Node maker = *edit.producer_node(x);
  const auto range = integers_attribute(*maker.op, "stored_range");
  if (!range || edit.graph().value(table.outputs[0]).dtype != type) return;
  auto to = clamped_to(*integers_attribute(*table.op, "table"), type == DType::i8, *range);
  if (!to) return;
  edit.replace(id, with_attributes(*maker.op, {{"stored_range", std::move(*to)}}, maker.inputs.size()), maker.inputs);
  edit.graph().node(id).name = maker.name;
  edit.erase_unread(x);
}

/// The codes plus 128 as uint8.
ValueId unsigned_codes(GraphEdit& edit, ValueId x) {
  Ints table(256);
  for (std::size_t i = 0; i < 256; ++i) table[i] = static_cast<std::int64_t>(i ^ 128);
  return edit.add_node(edit.graph().value(x).name + ":unsigned",
                       make_normalised_op("QuantizedTable", {{"table", std::move(table)}}, 1), {x});
}

/// A Pad by x's zero point goes into the padding of the convolution that reads it.
void fold_pad_of_codes(GraphEdit& edit, NodeId id) {
  const Graph& graph = edit.graph();
  const Node node = graph.node(id);
  const NodeId above = edit.producer(node.inputs[0]);
  if (above == no_id || graph.node(above).type() != "Pad") return;
  const Node& pad = graph.node(above);
  const ValueId value = input_of(pad, 2);
  std::vector<InputInfo> infos = graph.input_infos(pad);
  // The bits of the code, as the zero point's are.
  std::uint8_t code = 0;
  if (value != no_id && infos[2].constant == nullptr) return;
  if (value != no_id) code = *static_cast<const std::uint8_t*>(infos[2].constant->data());
  if (code != static_cast<std::uint8_t>(node.op->epilogue()->requantize->x_zero_point)) return;
  // As if it added zeros to numbers.
  infos[0].type.dtype = DType::f32;
  if (infos.size() > 2) infos[2] = {};
  const auto added = pad.op->added_zeros(infos);
  auto pads = node.op->imagined_zeros(graph.input_infos(node));
  if (!added || !pads) return;
  std::ranges::transform(*pads, *added, pads->begin(), std::plus());
  std::vector<ValueId> inputs = node.inputs;
  inputs[0] = pad.inputs[0];
  edit.replace(id, node.op->imagining_zeros(std::move(*pads)), std::move(inputs));
  edit.erase_unread(node.inputs[0]);
}

}  // namespace

void finish_codes(GraphEdit& edit) {
  std::map<ValueId, ValueId> made;
  for (const NodeId n : edit.nodes()) {
    if (edit.erased(n)) continue;
    fold_table(edit, n);
    if (edit.graph().node(n).type() != "Conv" || !edit.graph().node(n).op->epilogue()->requantize) continue;
    fold_pad_of_codes(edit, n);
    const Node node = edit.graph().node(n);
    const Epilogue* const epilogue = node.op->epilogue();
    if (edit.graph().value(node.inputs[0]).dtype != DType::i8) continue;
    Epilogue::Requantize to = *epilogue->requantize;
    to.x_zero_point += 128;
    Epilogue changed = *epilogue;
    changed.requantize = std::move(to);
    std::vector<ValueId> inputs = node.inputs;
    const auto found = made.find(inputs[0]);
    inputs[0] = found != made.end() ? found->second : made[inputs[0]] = unsigned_codes(edit, inputs[0]);
    edit.replace(n, node.op->with_epilogue(std::move(changed)), std::move(inputs));
  }
}

}  // namespace lenslet
