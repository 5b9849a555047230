#pragma once
// Values that lie within another as a strided view: what Reshape, Transpose, Split, Slice and Gather of one index make.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// Element [i0,i1...] is `factor` times element offset + i0 * strides[0] + i1 * strides[1] ... of `value` (nchw). The
/// stride of an axis of size 1 is 0.
struct StridedView {
  ValueId value = no_id;
  std::int64_t offset = 0;
  std::vector<std::int64_t> dims, strides;
  double factor = 1;

  /// Gives it other dimensions with the same elements in order; false where strides cannot say it.
  bool reshape(const Shape& to);
};

/// The value itself.
StridedView whole_value(const Graph& graph, ValueId id);

/// Part of an axis: `extent` elements, `stride` apart.
struct Factor {
  std::int64_t extent = 1, stride = 0;
};
/// The parts of an axis from the outermost on; none: an axis of size 1.
using Axis = std::vector<Factor>;
std::int64_t extent_of(const Axis& axis);

/// A view whose axes may have several strides each: two images of three heads as one axis of six, which a later Reshape
/// takes apart again.
struct FactoredView {
  ValueId value = no_id;
  std::int64_t offset = 0;
  std::vector<Axis> axes;
  double factor = 1;

  explicit FactoredView(const StridedView& view);
  /// Nothing where an axis needs several strides.
  std::optional<StridedView> strided() const;
  /// Other dimensions with the same elements in order; false, and the view as it was, where axes cannot be cut so.
  bool reshape(const Shape& to);
  /// Takes `extent` elements of axis `i` from `start` on, `step` apart; false where strides cannot say it.
  bool take(std::size_t i, std::int64_t start, std::int64_t extent, std::int64_t step = 1);
};

/// All views that `id` is, from that of the value furthest above to `id` itself, through operators that move elements
/// or multiply by a known scalar, at most 64. An empty value has no view.
std::vector<FactoredView> views_of(const GraphEdit& edit, ValueId id);

/// y = x * factor by a Mul or Div of one known scalar, or nothing.
struct Scaled {
  ValueId x = no_id;
  double factor = 1;
};
std::optional<Scaled> scaled(const Graph& graph, const Node& node);

}  // namespace lenslet
