#pragma once
// An op on [N,H,W,C] as the same op on [N,C,H,W].

#include <optional>
#include <span>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// Output axis i of a Transpose is input axis perm[i].
inline const std::vector<std::int64_t> to_channels_first{0, 3, 1, 2}, to_channels_last{0, 2, 3, 1};

std::shared_ptr<const Op> make_transpose_op(const std::vector<std::int64_t>& perm);
/// Whether a Transpose by `perm` moves no element of a tensor of shape `x` (dimensions larger than 1 keep their order).
bool keeps_order(std::span<const std::int64_t> perm, const Shape& x);

/// A Reshape to the shape in input 1, where 0 is a size.
std::shared_ptr<const Op> make_reshape_op();

/// The float32 matrix [K,C] of one [C,K].
Tensor transposed_matrix(const Tensor& matrix);

/// A node rewritten to read [N,C,H,W] where it read [N,H,W,C].
struct ChannelsFirstNode {
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;
  std::vector<Node> before = {};  ///< nodes to insert before it, which rename axes of inputs without moving data
  Shape output = {};              ///< shape of its output 0
  bool same_result = false;       ///< the result is unchanged; else it is [N,C,H,W] and must be transposed back
};

/// `twins` gives for each input of `node` the [N,C,H,W] value with the same contents as the [N,H,W,C] input, or no_id.
/// Of the inputs that the operator permutes (Op::permuted) at least one must have a twin, and each other must be a
/// constant or have at most one axis larger than 1. Adds constants and values to the graph. nullopt for other ops.
std::optional<ChannelsFirstNode> to_channels_first_node(Graph& graph, const Node& node,
                                                        const std::vector<ValueId>& twins);

}  // namespace lenslet
