#pragma once
// Time stamps within a recorded graph. Plain C++.

#include <cstdint>

#include "base/cuda/context.h"

namespace lenslet::cuda {

/// Writes the GPU's clock, in nanoseconds, to the device's memory `to` once all work before has ended. The kernel after
/// it may start as early as without it. Error(device).
void stamp_time(const Context& context, std::uint64_t* to);
/// The same kernel, of one thread, for a node of its own; its argument is `to`.
const void* time_stamp_kernel();

}  // namespace lenslet::cuda
