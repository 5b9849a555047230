#pragma once
// Launcher of Cast.

#include <cstdint>

#include "base/small_types.h"

namespace lenslet::cuda {

struct Context;

/// to[i] = from[i] for i < elems, by the rules of base/convert.h (a NaN's payload may change). Device memory; any two
/// types; `to` may be `from` if the types are equal.
void cast(const Context& context, DType from_type, const void* from, DType to_type, void* to, std::int64_t elems,
          SmallRounding rounding);

}  // namespace lenslet::cuda
