#pragma once
// Images with channels last brought to mean 0 and variance 1, each in the registers of a cluster of blocks.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet::cuda {

struct Context;

/// y = (x - mean) / deviation * scale[c] + bias[c] of images x [images, length] of float32 or 16 bits whose pixels have
/// `channels` elements; device addresses, with DeviceProfile::clusters. y may be x. False, and nothing is queued, where
/// an image does not fit or channels are no whole vectors.
bool normalize_held_images(const Context& context, DType dtype, const void* x, void* y, const float* scale,
                           const float* bias, float epsilon, std::int64_t images, std::int64_t length,
                           std::int64_t channels);

}  // namespace lenslet::cuda
