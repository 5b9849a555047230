// fold_input_scale: constant factors and offsets by channels of a value that one convolution alone reads go into its
// filters and bias (NFNets scale each activation), factors of a value that several read into those of each, also behind
// AveragePools. Numbers that are multiplied or added one after the other become one before. Runs when activations are
// found: spelled ones end in factors.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/passes/affine_before_conv.h"
#include "runtime/passes/channel_affine.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// Filters of 16 bits must not overflow, nor lose digits below 2^-14.
bool moderate(const ChannelAffine& affine) {
  constexpr double most = 64;
  return std::ranges::all_of(affine.factor, [](double factor) {
    const double size = std::abs(factor);
    return size <= most && size >= 1 / most;
  });
}

/// x * a * b becomes x * (a * b), likewise x + a + b where the signs are one: others may be meant to round.
void merge_numbers(GraphEdit& edit, NodeId id) {
  const Graph& graph = edit.graph();
  const auto number_of = [&](const Node& node) {
    struct {
      ValueId x = no_id;
      double number = 0;
    } found;
    for (const std::size_t side : {0U, 1U})
      if (node.inputs.size() == 2 && graph.value(node.outputs[0]).dtype == DType::f32)
        if (const auto number = scalar_constant(graph, node.inputs[side]);
            number && graph.value(node.inputs[1 - side]).shape == graph.value(node.outputs[0]).shape)
          found = {node.inputs[1 - side], double{*number}};
    return found;
  };
  const std::string type(graph.node(id).type());
  if (type != "Mul" && type != "Add") return;
  const auto second = number_of(graph.node(id));
  const Node* const before = second.x != no_id && edit.merges(second.x) ? edit.made_by(second.x, type) : nullptr;
  if (before == nullptr) return;
  const auto first = number_of(*before);
  const auto both = static_cast<float>(type == "Mul" ? first.number * second.number : first.number + second.number);
  if (first.x == no_id || !std::isnormal(both) || (type == "Add" && first.number * second.number < 0)) return;
  const std::string name = graph.node(id).name;
  const ValueId merged = second.x, number = edit.add_constant(name + ":number", Tensor::of<float>(Shape{}, {both}));
  edit.replace(id, graph.node(id).op, {first.x, number});
  edit.erase_unread(merged);
}

}  // namespace

void fold_input_scale(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  const auto scales = [&](NodeId id) {
    const Node* const node = id == no_id || edit.erased(id) ? nullptr : &graph.node(id);
    if (node == nullptr ||
        (node->type() != "Mul" && node->type() != "Div" && node->type() != "Add" && node->type() != "Sub"))
      return false;
    const auto of = affine_of(graph, *node);
    return of && moderate(of->affine);
  };
  for (const NodeId id : edit.nodes())
    if (!edit.erased(id)) merge_numbers(edit, id);
  for (const NodeId id : edit.nodes())
    while (!edit.erased(id) && scales(edit.producer(input_of(graph.node(id), 0))) && fold_affine_before(edit, id)) {
    }
  std::vector<NodeId> last_first = edit.nodes();
  std::ranges::reverse(last_first);
  std::vector<std::vector<NodeId>> readers = graph.readers();
  for (const NodeId id : last_first)
    if (scales(id)) fold_factor_after(edit, id, readers);
  edit.finish();
}

}  // namespace lenslet
