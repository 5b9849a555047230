#pragma once
// y[k] = factor[k] * x[k] + offset[k] per output channel, taken up by the product that makes x.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// Output channels of the product that makes `id`, when its epilogue can take up an affine: `id` has no other use,
/// nothing is applied after the sums yet, weights and bias are constant.
std::optional<std::int64_t> affine_channels(const GraphEdit& edit, ValueId id);

/// Merges `node`, which computes `affine` of its input `id`, with the producer of `id`, for which affine_channels()
/// said a count. The merged node stands where `node` stood. Arithmetic in double, rounded once. Nothing changes
/// when a factor or the new bias is not finite in float.
void fold_affine(GraphEdit& edit, NodeId node, ValueId id, const ChannelAffine& affine);

}  // namespace lenslet
