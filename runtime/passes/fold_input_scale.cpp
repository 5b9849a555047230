// fold_input_scale: constant factors and offsets by channels of a value that one convolution alone reads go into its
// filters and bias (NFNets scale each activation). Runs when activations are found: spelled ones end in factors.
#include <algorithm>
#include <cmath>

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

}  // namespace

void fold_input_scale(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  const auto scales = [&](NodeId id) {
    const Node* const node = edit.producer_node(input_of(graph.node(id), 0));
    if (node == nullptr ||
        (node->type() != "Mul" && node->type() != "Div" && node->type() != "Add" && node->type() != "Sub"))
      return false;
    const auto of = affine_of(graph, *node);
    return of && moderate(of->affine);
  };
  for (const NodeId id : edit.nodes())
    while (!edit.erased(id) && scales(id) && fold_affine_before(edit, id)) {
    }
  edit.finish();
}

}  // namespace lenslet
