#pragma once
// Values that lie within another as a strided view: what Reshape, Transpose, Split, Slice and Gather of one index make.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// Element [i0,i1...] is `factor` times element offset + i0 * strides[0] + i1 * strides[1] ... of `value` (nchw).
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

/// All views that `id` is, from that of the value furthest above to `id` itself, through operators that move elements
/// or multiply by a known scalar. No dimension may be 0.
std::vector<StridedView> views_of(const GraphEdit& edit, ValueId id);

/// y = x * factor by a Mul or Div of one known scalar, or nothing.
struct Scaled {
  ValueId x = no_id;
  double factor = 1;
};
std::optional<Scaled> scaled(const Graph& graph, const Node& node);

}  // namespace lenslet
