#pragma once
// y[k] = factor[k] * x[k] + offset[k] per output channel, folded into the product that makes x.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// Output channels of the product that makes `id`, if an affine can be folded into it: `id` has no other use, the
/// epilogue applies nothing yet, and weights and bias are constant.
std::optional<std::int64_t> affine_channels(const GraphEdit& edit, ValueId id);

/// Merges `node`, which computes `affine` of its input `id`, with the producer of `id`, for which affine_channels()
/// gave a count. The merged node replaces `node`. Computed in double, rounded once. No change if a factor or the new
/// bias is not finite in float.
void fold_affine(GraphEdit& edit, NodeId node, ValueId id, const ChannelAffine& affine);

}  // namespace lenslet
