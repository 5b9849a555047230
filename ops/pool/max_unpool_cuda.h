#pragma once
// MaxUnpool on the device.

#include <cstdint>

#include "ops/core/strided_copy.h"

namespace lenslet::cuda {

struct Context;

/// y [outputs] is 0 but for y[place(indices[i])] = x[i], i < elems; of equal indices the last one counts. `places`
/// leads from the tensor that indices count in (`from`, without gaps) to y. Indices outside it are passed over. Device
/// addresses, y aligned to 16 bytes; `elems` < 2^31.
void max_unpool(const Context& context, const StridedLoops& places, std::int64_t elems, const float* x,
                const std::int64_t* indices, std::int64_t outputs, float* y);

}  // namespace lenslet::cuda
