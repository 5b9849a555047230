#pragma once
// Launcher of linear Resize of 8-bit integers.

#include <cstdint>

#include "lenslet/tensor.h"
#include "ops/resample/taps.h"

namespace lenslet::cuda {

struct Context;

/// As IntegerResize, with the taps as a table, axis by axis.
struct IntegerResizeLaunch {
  std::int64_t outer = 1, inner = 1;
  int axes = 0;
  std::int64_t in[Shape::max_rank] = {}, out[Shape::max_rank] = {};
};

/// i8 or u8. Device addresses that do not overlap.
void resize_integers(const Context& context, const IntegerResizeLaunch& launch, DType dtype, const LinearTap* table,
                     const void* x, void* y);

}  // namespace lenslet::cuda
