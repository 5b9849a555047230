#pragma once
// Gather on the device.

#include <cstddef>
#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// Sizes of a Gather: data [outer, dim, inner], `count` indices, result [outer, count, inner].
struct GatherShape {
  std::int64_t outer = 1, dim = 1, count = 1, inner = 1;
};

/// to[o][j][i] = from[o][indices[j]][i]. Elements of 1, 2, 4 or 8 bytes; the indices, on the device too, are int64
/// (`wide_indices`) or int32 and known to lie in [-dim, dim): the kernel does not check them.
void gather(const Context& context, std::size_t element_bytes, const GatherShape& shape, const void* from,
            const void* indices, bool wide_indices, void* to);

}  // namespace lenslet::cuda
