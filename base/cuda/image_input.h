#pragma once
// Images into a network's input on the device: one kernel resizes, crops and normalises.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/cuda/buffer.h"
#include "base/cuda/context.h"
#include "base/cuda/image_kernel.h"
#include "base/cuda/stream.h"
#include "base/image_plan.h"
#include "lenslet/image.h"

namespace lenslet::cuda {

/// to_input() on the device, bit-identical to the CPU: integer arithmetic (columns first, rounded to 8 bits, then rows,
/// rounded again) and a table of 256 normalised values per channel. Tables are kept for images of the same size.
/// The device of the calls must be current in constructor and destructor. Not thread-safe. Staging memory grows with
/// the largest image so far.
class ImageInput {
 public:
  /// Queues copy and kernel on context.stream (always the same one) and returns when `image` may be freed; pixels that
  /// are `on_cuda` are read where they are. Waits for the copy of the last call but one. `input` is the network's input
  /// as for to_input(), with data on the device. Errors of to_input(), before anything is queued, and Error(device).
  void queue(const Context& context, const ImageView& image, const ImageSpec& spec, const Tensor& input,
             std::int64_t index);

 private:
  struct Kind {
    std::int64_t height = 0, width = 0, channels = 0;  // of the image
    ImageSpec spec;
    DType dtype = DType::f32;  // of the input
    bool operator==(const Kind&) const = default;
  };
  struct Staging {
    PinnedBuffer<std::byte> pixels;
    Event copied;
  };

  void make_tables(const Context& context, const Kind& kind, const ResizePlan& plan);
  const std::uint8_t* upload(const Context& context, const ImageView& image);

  std::optional<Kind> kind_;                 // of the tables
  ImageJob job_;                             // the same for all images of a kind
  std::int64_t top_ = 0, rows_ = 0;          // of the image, that the kernel reads
  DeviceBuffer<std::byte> tables_, pixels_;  // their readers run before the next copy into them: they share a stream
  std::array<Staging, 2> staging_;
  std::size_t next_ = 0;
};

}  // namespace lenslet::cuda
