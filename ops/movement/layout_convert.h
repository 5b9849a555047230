#pragma once
// LayoutConvert (domain lenslet): the elements of a 4-D tensor in the other layout. The assign_layout pass inserts it.

#include <memory>

#include "ops/core/op.h"

namespace lenslet {

/// Converts from the layout of its input to the layout of its output: any element type, same shape.
std::shared_ptr<const Op> make_layout_convert();
/// Row of the op table; no attributes.
std::shared_ptr<const Op> make_layout_convert(const NodeSpec& spec);

}  // namespace lenslet
