#pragma once
// One value of each row where an index says, another one elsewhere: OneHot, and what Hardmax ends with.

#include <cstddef>
#include <cstdint>

#include "base/dtypes.h"
#include "ops/core/kernel.h"

namespace lenslet {

/// Indices as ONNX allows them here; those that are no integers are cut towards zero.
using OneHotIndexTypes =
    Types<std::int64_t, std::int32_t, float, double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t>;

/// Indices [outer, inner], result [outer, depth, inner].
struct OneHotShape {
  std::int64_t outer = 1, depth = 1, inner = 1;
};

/// y[o][indices[o][i]][i] is `on`, everything else of y `off`: elements of 1, 2, 4 or 8 bytes in the low ones.
/// Negative indices count from the end; those outside [-depth, depth) name nothing.
void one_hot(ThreadPool& pool, std::size_t element_bytes, const OneHotShape& shape, DType index_type,
             const void* indices, std::uint64_t off, std::uint64_t on, void* y);

namespace cuda {

/// The same on device addresses; `values` points at two elements there, off and on, or is null: then `off` and `on`
/// hold them.
void one_hot(const Context& context, std::size_t element_bytes, const OneHotShape& shape, DType index_type,
             const void* indices, const void* values, std::uint64_t off, std::uint64_t on, void* y);

}  // namespace cuda
}  // namespace lenslet
