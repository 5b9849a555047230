#pragma once
// y[k] = factor[k] * x[k] + offset[k] folded into the convolutions that read it (channel_affine.h: into the product
// that makes x).

#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// Folds the affine that makes the input of the convolution `node`, which alone reads it, and which must not pad,
/// unless offset is 0 (then padding of zeros stays zero). Filters [K,C/groups,..] are multiplied by factor[c], and the
/// bias gains their response to offset[c]. Computed in double, rounded once. False and no change otherwise, and if a
/// filter or the new bias is not finite in float.
bool fold_affine_before(GraphEdit& edit, NodeId node);

/// The same of the factors that `node` computes, without an offset, if all that read them are such convolutions, or
/// AveragePools that such convolutions alone read, each with a filter of its own from before. `readers` is
/// Graph::readers(), and is kept up to date.
bool fold_factor_after(GraphEdit& edit, NodeId node, std::vector<std::vector<NodeId>>& readers);

}  // namespace lenslet
