#pragma once
// Launcher of ArgMax and ArgMin.

#include <cstddef>
#include <cstdint>

#include "lenslet/tensor.h"
#include "ops/reduce/reduce_kernels.h"

namespace lenslet::cuda {

struct Context;

/// to[kept] = position along the reduced axis (one loop of `loops`, not empty) of the largest or smallest element, the
/// first of equals or the last. `dtype` f32, i32, i64, u8 or i8; device addresses; `workspace` has
/// reduce_workspace_bytes(loops). A NaN counts only as element 0, which then stays, as on the CPU.
void arg_extreme(const Context& context, bool largest, bool last, DType dtype, const reduce::Loops& loops,
                 const void* from, std::int64_t* to, std::byte* workspace);

}  // namespace lenslet::cuda
