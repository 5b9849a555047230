#pragma once
// Index walks on the device, with int64 (`wide_indices`) or int32 indices. With a `context.fault` they are checked: one
// out of range is reported and moves nothing. Otherwise they are known to be valid.

#include <cstddef>
#include <cstdint>

#include "ops/movement/index_walk.h"
#include "ops/movement/scatter.h"

namespace lenslet::cuda {

struct Context;

/// to[row][inner] = from[offset named by tuple `row`][inner]. Elements of 1, 2, 4 or 8 bytes.
void gather(const Context& context, std::size_t element_bytes, const IndexWalk& walk, const void* from,
            const void* indices, bool wide_indices, void* to);

/// For each tuple of the walk, combines to[its offset][inner] with updates[tuple][inner] by `kind`. At each position of
/// the walk's loops one thread applies the tuples of `chain` in order; tuples at different positions name different
/// elements. loops * inner is at most max_scattered. `none` takes any type, the others ScatterTypes.
inline constexpr std::int64_t max_scattered = (std::int64_t{1} << 31) - 1024;
using ScatterTypes =
    Types<float, double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::int64_t>;
void scatter(const Context& context, ScatterKind kind, DType dtype, const IndexWalk& walk,
             const StridedLoops::Loop& chain, const void* indices, bool wide_indices, const void* updates, void* to);

}  // namespace lenslet::cuda
