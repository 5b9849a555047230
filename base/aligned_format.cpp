#include "base/aligned_format.h"

#include <algorithm>

namespace lenslet {

std::int64_t aligned_channels(std::int64_t channels, DType dtype) {
  const std::int64_t unit = std::max<std::int64_t>(1, 16 / static_cast<std::int64_t>(dtype_bytes(dtype)));
  return (channels + unit - 1) / unit * unit;
}

Format aligned_nhwc(std::int64_t channels, DType dtype) {
  Format format = formats::nhwc;
  if (const std::int64_t pitch = aligned_channels(channels, dtype); pitch != channels) format.pixel_pitch = pitch;
  return format;
}

bool may_have_pitch(const Format& format) {
  return format.order == Format::Order::channels_last && format.channel_block == 1 && format.halo == Format::Halo();
}

}  // namespace lenslet
