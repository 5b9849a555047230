#pragma once
// One value per row where an index says, another elsewhere: OneHot, and the last step of Hardmax.

#include <cstddef>
#include <cstdint>

#include "base/dtypes.h"
#include "ops/core/kernel.h"

namespace lenslet {

/// The index types that ONNX allows here; non-integers are truncated.
using OneHotIndexTypes =
    Types<std::int64_t, std::int32_t, float, double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t>;

/// Indices [outer, inner], result [outer, depth, inner].
struct OneHotShape {
  std::int64_t outer = 1, depth = 1, inner = 1;
};

/// y[o][indices[o][i]][i] is `on`, the rest of y `off`: elements of 1, 2, 4 or 8 bytes in the low bytes. Negative
/// indices count from the end; indices outside [-depth, depth) set nothing.
void one_hot(ThreadPool& pool, std::size_t element_bytes, const OneHotShape& shape, DType index_type,
             const void* indices, std::uint64_t off, std::uint64_t on, void* y);

namespace cuda {

/// The same on device addresses; `values` points to two elements there, off and on; if null, `off` and `on` hold them.
void one_hot(const Context& context, std::size_t element_bytes, const OneHotShape& shape, DType index_type,
             const void* indices, const void* values, std::uint64_t off, std::uint64_t on, void* y);

}  // namespace cuda
}  // namespace lenslet
