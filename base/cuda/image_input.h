#pragma once
// Photos into a network's input on the device: resized, cropped and normalised by one kernel.

#include <cstdint>

#include "base/cuda/buffer.h"
#include "base/cuda/context.h"
#include "base/cuda/stream.h"
#include "lenslet/image.h"

namespace lenslet::cuda {

/// The device side of to_input(). The arithmetic is the CPU's own, in integers (columns first, rounded to 8 bits, then
/// rows, rounded again) and a table of 256 normalised values a channel: the results are the same bits.
/// The device of the calls must be current when it is made and when it ends. Not thread-safe. Staging memory grows with
/// the largest image so far.
class ImageInput {
 public:
  /// Queues copy and kernel on context.stream, the same one in every call, and returns when `image` may go. Waits until
  /// the copy of the call before is done. `input` describes the network's input as to_input() wants it, with its data
  /// on the device. Errors as of to_input(), before anything is queued, and Error(device).
  void queue(const Context& context, const ImageView& image, const ImageSpec& spec, const Tensor& input,
             std::int64_t index);

 private:
  PinnedBuffer<std::byte> host_;
  DeviceBuffer<std::byte> device_;  // its readers run before the next copy into it: they share a stream
  Event copied_;                    // host_ to device_
};

}  // namespace lenslet::cuda
