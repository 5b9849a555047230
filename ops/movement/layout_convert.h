#pragma once
// LayoutConvert (domain lenslet): the elements of a 4-D tensor in another format. Plans insert it.

#include <memory>

#include "ops/core/op.h"

namespace lenslet {

/// The identity, of any element type, from one format to the other: what the target stores beside the elements (padded
/// blocks, halo) is 0. attributes(): from and to, as text.
std::shared_ptr<const Op> make_layout_convert(const Format& from, const Format& to);

}  // namespace lenslet
