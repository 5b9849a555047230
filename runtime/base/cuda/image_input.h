#pragma once
// Photos into a network's input on the device: resized, cropped and normalised by one kernel.

#include <cstdint>

#include "lenslet/image.h"
#include "runtime/base/cuda/buffer.h"
#include "runtime/base/cuda/context.h"

namespace lenslet::cuda {

/// The device side of to_input(). The arithmetic is the CPU's own, in integers (columns first, rounded to 8 bits, then
/// rows, rounded again) and a table of 256 normalised values a channel: the results are the same bits.
/// Not thread-safe. Staging memory grows with the largest image so far.
class ImageInput {
 public:
  /// Queues copy and kernel on context.stream and returns when `image` may go. `input` describes the network's input
  /// as to_input() wants it, with its data on the device. The previous queue() has to have run: its staging memory is
  /// reused. Errors as of to_input(), and Error(device).
  void queue(const Context& context, const ImageView& image, const ImageSpec& spec, const Tensor& input,
             std::int64_t index);

 private:
  PinnedBuffer<std::byte> host_;
  DeviceBuffer<std::byte> device_;
};

}  // namespace lenslet::cuda
