#include "base/cuda/image_input.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "base/cuda/image_kernel.h"
#include "base/image_plan.h"
#include "lenslet/error.h"

namespace lenslet::cuda {
namespace {

/// Parts of one block, 16-byte aligned, at equal offsets on host and device.
class Pieces {
 public:
  template <typename T>
  std::size_t reserve(std::size_t count) {
    const std::size_t at = bytes_;
    bytes_ += (count * sizeof(T) + 15) / 16 * 16;
    return at;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

struct TapsPieces {
  TapsPieces(Pieces& pieces, const Taps& taps)
      : first(pieces.reserve<std::int32_t>(taps.first.size())),
        count(pieces.reserve<std::int32_t>(taps.count.size())),
        weights(pieces.reserve<std::int32_t>(taps.weights.size())) {}
  std::size_t first, count, weights;
};

/// Puts `before` results in front and others at the end, until there are `size`, that take no source pixels.
void pad(Taps& taps, std::int64_t before, std::int64_t size) {
  const auto extend = [&](auto& values, std::int64_t each, auto first, auto last) {
    values.insert(values.begin(), static_cast<std::size_t>(before * each), first);
    values.resize(static_cast<std::size_t>(size * each), last);
  };
  extend(taps.first, 1, taps.first.front(), taps.first.back());
  extend(taps.count, 1, 0, 0);
  extend(taps.weights, taps.taps, 0, 0);
}

/// Writes source indices relative to `origin`.
void write(const Taps& taps, const TapsPieces& at, std::int64_t origin, std::byte* host) {
  auto* first = reinterpret_cast<std::int32_t*>(host + at.first);
  auto* count = reinterpret_cast<std::int32_t*>(host + at.count);
  for (std::size_t i = 0; i < taps.first.size(); ++i) {
    first[i] = static_cast<std::int32_t>(taps.first[i] - origin);
    count[i] = static_cast<std::int32_t>(taps.count[i]);
  }
  std::memcpy(host + at.weights, taps.weights.data(), taps.weights.size() * sizeof(std::int32_t));
}

DeviceTaps on_device(const Taps& taps, const TapsPieces& at, const std::byte* device) {
  const auto ints = [&](std::size_t offset) { return reinterpret_cast<const std::int32_t*>(device + offset); };
  return {ints(at.first), ints(at.count), ints(at.weights), static_cast<std::int32_t>(taps.taps)};
}

}  // namespace

void ImageInput::queue(const Context& context, const ImageView& image, const ImageSpec& spec, const Tensor& input,
                       std::int64_t index) {
  check_image_input(spec, input, index);
  const ResizePlan plan = plan_resize(image, spec);
  const bool same_size = plan.height == image.height && plan.width == image.width;
  Taps rows = resize_taps(image.height, plan.height, plan.window.top, plan.window.height, spec.filter, spec.antialias,
                          same_size);
  Taps columns =
      resize_taps(image.width, plan.width, plan.window.left, plan.window.width, spec.filter, spec.antialias, same_size);
  pad(rows, plan.top, spec.height);
  pad(columns, plan.left, spec.width);
  const std::int64_t channels = image_channels(spec);

  // Uploads only the source rows that the window needs, without gaps.
  const std::int64_t row_bytes = image.width * image.channels;
  const std::int64_t top = *std::min_element(rows.first.begin(), rows.first.end());
  std::int64_t bottom = top;
  for (std::size_t i = 0; i < rows.first.size(); ++i) bottom = std::max(bottom, rows.first[i] + rows.count[i]);
  const auto source_bytes = static_cast<std::size_t>((bottom - top) * row_bytes);

  Pieces pieces;
  const std::size_t source_at = pieces.reserve<std::uint8_t>(source_bytes);
  const TapsPieces rows_at(pieces, rows), columns_at(pieces, columns);
  const Tensor tables = normalisation_tables(spec, input.dtype());
  const std::size_t tables_at = pieces.reserve<std::byte>(tables.bytes());
  copied_.synchronize();
  if (device_.bytes() < pieces.bytes()) {  // it grows last: should memory be short, the next call tries again
    host_ = PinnedBuffer<std::byte>(pieces.bytes());
    device_ = DeviceBuffer<std::byte>(pieces.bytes());
  }
  std::byte* const host = host_.data();
  if (image.pitch() == row_bytes)
    std::memcpy(host + source_at, image.pixels + top * row_bytes, source_bytes);
  else
    for (std::int64_t y = top; y < bottom; ++y)
      std::memcpy(host + source_at + static_cast<std::size_t>((y - top) * row_bytes), image.pixels + y * image.pitch(),
                  static_cast<std::size_t>(row_bytes));
  write(rows, rows_at, top, host);
  write(columns, columns_at, 0, host);
  std::memcpy(host + tables_at, tables.data(), tables.bytes());
  CUDA_CHECK(cudaMemcpyAsync(device_.data(), host, pieces.bytes(), cudaMemcpyHostToDevice, context.stream));
  CUDA_CHECK(cudaEventRecord(copied_.get(), context.stream));

  const std::byte* const device = device_.data();
  ImageJob job;
  job.source = reinterpret_cast<const std::uint8_t*>(device + source_at);
  job.row_bytes = row_bytes;
  job.source_channels = static_cast<std::int32_t>(image.channels);
  job.gray = image.channels == 3 && channels == 1;
  job.height = static_cast<std::int32_t>(spec.height);
  job.width = static_cast<std::int32_t>(spec.width);
  job.channels = static_cast<std::int32_t>(channels);
  const std::array<std::uint8_t, 3> color = pad_pixel(spec);
  std::copy(color.begin(), color.end(), job.pad);
  job.reversed = spec.channels == ImageSpec::Channels::bgr;
  job.rows = on_device(rows, rows_at, device);
  job.columns = on_device(columns, columns_at, device);
  job.tables = device + tables_at;
  job.elem_bytes = dtype_bytes(input.dtype());
  const std::int64_t area = spec.height * spec.width;
  const bool interleaved = spec.nhwc || input.format() == formats::nhwc;
  job.c_stride = interleaved ? 1 : area;
  job.pixel_stride = interleaved ? channels : 1;
  job.y = const_cast<std::byte*>(static_cast<const std::byte*>(input.data())) +
          static_cast<std::size_t>(index * area * channels) * job.elem_bytes;
  image_to_input(job, context);
}

}  // namespace lenslet::cuda
