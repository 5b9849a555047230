#include "base/cuda/image_input.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

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

void ImageInput::make_tables(const Context& context, const Kind& kind, const ResizePlan& plan) {
  const ImageSpec& spec = kind.spec;
  const bool same_size = plan.height == kind.height && plan.width == kind.width;
  Taps rows = resize_taps(kind.height, plan.height, plan.window.top, plan.window.height, spec.filter, spec.antialias,
                          same_size);
  Taps columns =
      resize_taps(kind.width, plan.width, plan.window.left, plan.window.width, spec.filter, spec.antialias, same_size);
  pad(rows, plan.top, spec.height);
  pad(columns, plan.left, spec.width);
  const std::int64_t channels = image_channels(spec);
  // Only the source rows that the window needs are uploaded.
  const std::int64_t top = *std::min_element(rows.first.begin(), rows.first.end());
  std::int64_t bottom = top;
  for (std::size_t i = 0; i < rows.first.size(); ++i) bottom = std::max(bottom, rows.first[i] + rows.count[i]);

  Pieces pieces;
  const TapsPieces rows_at(pieces, rows), columns_at(pieces, columns);
  const Tensor values = normalisation_tables(spec, kind.dtype);
  const std::size_t values_at = pieces.reserve<std::byte>(values.bytes());
  std::vector<std::byte> host(pieces.bytes());
  write(rows, rows_at, top, host.data());
  write(columns, columns_at, 0, host.data());
  std::memcpy(host.data() + values_at, values.data(), values.bytes());
  kind_.reset();
  if (tables_.bytes() < host.size()) tables_ = DeviceBuffer<std::byte>(host.size());
  // From memory that is not pinned: the call returns when the bytes have been read.
  CUDA_CHECK(cudaMemcpyAsync(tables_.data(), host.data(), host.size(), cudaMemcpyHostToDevice, context.stream));

  job_ = {};
  job_.source_channels = static_cast<std::int32_t>(kind.channels);
  job_.gray = kind.channels == 3 && channels == 1;
  job_.height = static_cast<std::int32_t>(spec.height);
  job_.width = static_cast<std::int32_t>(spec.width);
  job_.channels = static_cast<std::int32_t>(channels);
  const std::array<std::uint8_t, 3> color = pad_pixel(spec);
  std::copy(color.begin(), color.end(), job_.pad);
  job_.reversed = spec.channels == ImageSpec::Channels::bgr;
  job_.rows = on_device(rows, rows_at, tables_.data());
  job_.columns = on_device(columns, columns_at, tables_.data());
  job_.tables = tables_.data() + values_at;
  job_.elem_bytes = dtype_bytes(kind.dtype);
  top_ = top;
  rows_ = bottom - top;
  kind_ = kind;
}

/// Copies the rows that the kernel reads, without gaps.
const std::uint8_t* ImageInput::upload(const Context& context, const ImageView& image) {
  const auto row_bytes = static_cast<std::size_t>(image.width * image.channels);
  const auto rows = static_cast<std::size_t>(rows_), bytes = rows * row_bytes;
  Staging& staging = staging_[next_];
  next_ = 1 - next_;
  staging.copied.synchronize();
  if (staging.pixels.bytes() < bytes) staging.pixels = PinnedBuffer<std::byte>(bytes);
  if (pixels_.bytes() < bytes) pixels_ = DeviceBuffer<std::byte>(bytes);
  std::byte* const host = staging.pixels.data();
  const std::uint8_t* const from = image.pixels + top_ * image.pitch();
  if (image.pitch() == image.width * image.channels)
    std::memcpy(host, from, bytes);
  else
    for (std::size_t y = 0; y < rows; ++y)
      std::memcpy(host + y * row_bytes, from + static_cast<std::int64_t>(y) * image.pitch(), row_bytes);
  CUDA_CHECK(cudaMemcpyAsync(pixels_.data(), host, bytes, cudaMemcpyHostToDevice, context.stream));
  CUDA_CHECK(cudaEventRecord(staging.copied.get(), context.stream));
  return reinterpret_cast<const std::uint8_t*>(pixels_.data());
}

void ImageInput::queue(const Context& context, const ImageView& image, const ImageSpec& spec, const Tensor& input,
                       std::int64_t index) {
  check_image_input(spec, input, index);
  const ResizePlan plan = plan_resize(image, spec);
  if (const Kind kind{image.height, image.width, image.channels, spec, input.dtype()}; kind_ != kind)
    make_tables(context, kind, plan);
  ImageJob job = job_;
  job.source = image.on_cuda ? image.pixels + top_ * image.pitch() : upload(context, image);
  job.row_bytes = image.on_cuda ? image.pitch() : image.width * image.channels;
  const std::int64_t area = spec.height * spec.width;
  const bool interleaved = spec.nhwc || input.format() == formats::nhwc;
  job.c_stride = interleaved ? 1 : area;
  job.pixel_stride = interleaved ? job.channels : 1;
  job.y = const_cast<std::byte*>(static_cast<const std::byte*>(input.data())) +
          static_cast<std::size_t>(index * area * job.channels) * job.elem_bytes;
  image_to_input(job, context);
}

}  // namespace lenslet::cuda
