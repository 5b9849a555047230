#pragma once
// Launchers of reductions.

#include <cstddef>
#include <cstdint>

#include "lenslet/tensor.h"
#include "ops/reduce/reduce_kernels.h"
#include "ops/reduce/reduce_kind.h"

namespace lenslet::cuda {

struct Context;

/// Device memory that reduce() and arg_extreme() need over these loops.
std::size_t reduce_workspace_bytes(const reduce::Loops& loops);

/// to[kept] = the reduction of from[kept + reduced]; device addresses, `dtype` f32, i32 or i64 on both sides. Floating
/// point is accumulated in double, integers modulo 2^64, as on the CPU: on an H200, with double at half the rate of
/// float, memory stays the limit. The same bits on every device and in every run.
void reduce(const Context& context, ReduceKind kind, DType dtype, const reduce::Loops& loops, const void* from,
            void* to, std::byte* workspace);

}  // namespace lenslet::cuda
