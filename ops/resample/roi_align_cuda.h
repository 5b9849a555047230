#pragma once
// Launcher of RoiAlign.

#include "ops/resample/roi_align.h"

namespace lenslet::cuda {

struct Context;

/// Device addresses; `y` overlaps nothing. An invalid image index gives NaN.
void roi_align(const Context& context, const RoiAlignShape& shape, const float* x, const float* boxes,
               const std::int64_t* images, float* y);

}  // namespace lenslet::cuda
