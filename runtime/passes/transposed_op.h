#pragma once
// An op on [N,H,W,C] as the same op on [N,C,H,W].

#include <optional>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// Output axis i of a Transpose is input axis perm[i].
inline const std::vector<std::int64_t> to_channels_first{0, 3, 1, 2}, to_channels_last{0, 2, 3, 1};

/// The same bytes under the shape that input 1 names, in which a 0 is a size.
std::shared_ptr<const Op> make_reshape_op();

/// A node rewritten to read [N,C,H,W] where it read [N,H,W,C].
struct ChannelsFirstNode {
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;
  std::vector<Node> before = {};  ///< to stand before it: they rename the axes of inputs without moving a byte
  Shape output = {};              ///< shape of its output 0
  bool same_result = false;       ///< the result is what it was; else it is [N,C,H,W], to be transposed to what it was
};

/// `twins` gives, for the inputs of `node`, the [N,C,H,W] value that holds what the [N,H,W,C] input holds, or no_id.
/// Of the inputs that the operator wants permuted (Op::permuted) one must have a twin, and each be free to move: by a
/// twin, as a constant, or since all its axes but one have size 1. Adds constants and values to the graph. Nothing for
/// ops that are not written this way.
std::optional<ChannelsFirstNode> to_channels_first_node(Graph& graph, const Node& node,
                                                        const std::vector<ValueId>& twins);

}  // namespace lenslet
