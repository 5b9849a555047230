#pragma once
// y[k] = factor[k] * x[k] + offset[k] per output channel, folded into the product that makes x.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// y[k] = factor[k] * x[k] + offset[k], x and y of one shape.
struct AffineOf {
  ValueId x = no_id;
  ChannelAffine affine;
};
/// `node` as an affine of one of its inputs, if all else is known.
std::optional<AffineOf> affine_of(const Graph& graph, const Node& node);

/// A product's bias per channel, as in the file, zeros without one; nothing if it is not constant or not one value per
/// channel.
std::optional<std::vector<float>> product_bias(const Graph& graph, ValueId bias, std::int64_t channels);

/// Output channels of the product that makes `id`, if an affine can be folded into it: `id` has no other use, the
/// epilogue applies nothing yet, and weights and bias are constant.
std::optional<std::int64_t> affine_channels(const GraphEdit& edit, ValueId id);

/// What the product that makes `id` becomes with an affine of its result, of channels along the epilogue's axis;
/// nothing if affine_channels() are others, or a factor or the new bias is not finite in float. Computed in double,
/// rounded once.
struct AffineProduct {
  Epilogue epilogue;
  std::vector<float> bias;
};
std::optional<AffineProduct> affine_product(const GraphEdit& edit, ValueId id, const ChannelAffine& affine);
/// Its inputs, with the new bias as a constant.
std::vector<ValueId> inputs_of(GraphEdit& edit, NodeId product, const AffineProduct& changed);

/// Merges `node`, if it computes an affine of a product's result, with the product, which gives the merged node its
/// name and note. False and no change otherwise.
bool fold_affine(GraphEdit& edit, NodeId node);

}  // namespace lenslet
