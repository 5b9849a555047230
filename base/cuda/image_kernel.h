#pragma once
// The kernel behind ImageInput.

#include <cstddef>
#include <cstdint>

#include "base/cuda/context.h"

namespace lenslet::cuda {

/// Device copy of one direction's Taps (base/resize.h); `first` and `count` in pixels. A count of 0: padding.
struct DeviceTaps {
  const std::int32_t* first = nullptr;
  const std::int32_t* count = nullptr;
  const std::int32_t* weights = nullptr;  ///< [result pixels][taps]
  std::int32_t taps = 1;
};

/// source: [rows, row_bytes / channels, channels] 8-bit pixels, whole rows. y: one image of the input, element (c, h,
/// w) at y[c * c_stride + (h * width + w) * pixel_stride]. All pointers are device memory.
struct ImageJob {
  const std::uint8_t* source = nullptr;
  std::int64_t row_bytes = 0;
  std::int32_t source_channels = 3;                  ///< 1 or 3
  bool gray = false;                                 ///< three source channels become one before resizing
  std::int32_t height = 0, width = 0, channels = 3;  ///< of the result; 3 from one source channel repeats it
  std::uint8_t pad[3] = {};                          ///< the padding's pixel, in RGB order
  bool reversed = false;                             ///< BGR
  DeviceTaps rows, columns;
  std::size_t elem_bytes = 4;    ///< of `tables` and y: 2, 4 or 8
  const void* tables = nullptr;  ///< [channels][256], in the result's channel order
  void* y = nullptr;
  std::int64_t c_stride = 0, pixel_stride = 0;
};

void image_to_input(const ImageJob& job, const Context& context);

}  // namespace lenslet::cuda
