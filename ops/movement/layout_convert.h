#pragma once
// LayoutConvert (domain lenslet): converts a 4-D tensor to another format. Plans insert it.

#include <memory>

#include "ops/core/op.h"

namespace lenslet {

/// The identity of any element type from one format to the other; padding that the target stores (blocks, halo) is 0.
/// attributes(): from and to, as text.
std::shared_ptr<const Op> make_layout_convert(const Format& from, const Format& to);

}  // namespace lenslet
