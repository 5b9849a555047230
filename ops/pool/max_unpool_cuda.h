#pragma once
// MaxUnpool on the device.

#include <cstdint>

#include "ops/core/strided_copy.h"

namespace lenslet::cuda {

struct Context;

/// y [outputs] is 0 except y[place(indices[i])] = x[i], i < elems; of equal indices the last one wins. `places` maps
/// the indexed tensor (`from`, dense) to y. Indices outside of it are ignored. Device addresses, y 16-byte aligned;
/// `elems` < 2^31.
void max_unpool(const Context& context, const StridedLoops& places, std::int64_t elems, const float* x,
                const std::int64_t* indices, std::int64_t outputs, float* y);

}  // namespace lenslet::cuda
