#pragma once
// Images into a network's input on the device: one kernel resizes, crops and normalises.

#include <cstdint>

#include "base/cuda/buffer.h"
#include "base/cuda/context.h"
#include "base/cuda/stream.h"
#include "lenslet/image.h"

namespace lenslet::cuda {

/// to_input() on the device, bit-identical to the CPU: integer arithmetic (columns first, rounded to 8 bits, then rows,
/// rounded again) and a table of 256 normalised values per channel.
/// The device of the calls must be current in constructor and destructor. Not thread-safe. Staging memory grows with
/// the largest image so far.
class ImageInput {
 public:
  /// Queues copy and kernel on context.stream (always the same one) and returns when `image` may be freed. Waits for
  /// the previous call's copy. `input` is the network's input as for to_input(), with data on the device. Errors of
  /// to_input(), before anything is queued, and Error(device).
  void queue(const Context& context, const ImageView& image, const ImageSpec& spec, const Tensor& input,
             std::int64_t index);

 private:
  PinnedBuffer<std::byte> host_;
  DeviceBuffer<std::byte> device_;  // its readers run before the next copy into it: they share a stream
  Event copied_;                    // host_ to device_
};

}  // namespace lenslet::cuda
