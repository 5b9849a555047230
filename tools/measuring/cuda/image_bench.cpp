// Preprocessing of photos: the kernel alone, and all of ImageInput, which load_image uses.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/image_input.h"
#include "base/cuda/image_kernel.h"
#include "base/cuda/upload.h"
#include "base/resize.h"
#include "lenslet/image.h"
#include "tools/measuring/cuda/memory_bench.h"
#include "tools/measuring/samples.h"

namespace lenslet::bench {
namespace {

constexpr std::int64_t height = 1080, width = 1920, side = 224;
constexpr std::size_t photo_bytes = height * width * 3;
constexpr std::size_t input_elems = side * side * 3;

// The whole photo, so that every byte counts.
ImageSpec stretched(ImageSpec::Filter filter) {
  ImageSpec spec;
  spec.height = spec.width = side;
  spec.resize = ImageSpec::Resize::stretch;
  spec.filter = filter;
  return spec;
}

class DeviceResize {
 public:
  DeviceResize(std::int64_t old_size, ImageSpec::Filter filter)
      : taps_(resize_taps(old_size, side, 0, side, filter, true, false)), memory_(2 * side + taps_.weights.size()) {
    std::vector<std::int32_t> values(taps_.first.begin(), taps_.first.end());
    values.insert(values.end(), taps_.count.begin(), taps_.count.end());
    values.insert(values.end(), taps_.weights.begin(), taps_.weights.end());
    cuda::copy_to_device(memory_.data(), values.data(), memory_.bytes());
  }
  cuda::DeviceTaps taps() const {
    return {memory_.data(), memory_.data() + side, memory_.data() + 2 * side, static_cast<std::int32_t>(taps_.taps)};
  }

 private:
  Taps taps_;
  cuda::DeviceBuffer<std::int32_t> memory_;  // first, count, weights
};

Row measure_kernel(cuda::Session& session, const std::string& name, ImageSpec::Filter filter) {
  const DeviceResize rows(height, filter), columns(width, filter);
  cuda::DeviceBuffer<float> table(3 * 256);
  CUDA_CHECK(cudaMemset(table.data(), 0, table.bytes()));
  cuda::ImageJob job;
  job.row_bytes = width * 3;
  job.height = job.width = side;
  job.rows = rows.taps();
  job.columns = columns.taps();
  job.tables = table.data();
  job.c_stride = side * side;
  job.pixel_stride = 1;
  CUDA_CHECK(cudaDeviceSynchronize());  // the session's stream does not wait for these copies
  return measure(session, fmt::format("{}x{} {} to {}x{}, kernel", width, height, name, side, side), photo_bytes,
                 input_elems * sizeof(float), [&](const cuda::Context& context, const std::byte* from, std::byte* to) {
                   job.source = reinterpret_cast<const std::uint8_t*>(from);
                   job.y = to;
                   cuda::image_to_input(job, context);
                 });
}

/// Median seconds by the host's clock from calling `queue` until its work is done.
template <typename Queue>
double seconds_to_finish(cuda::Session& session, const Queue& queue) {
  const auto once = [&] {
    const tool::Stopwatch watch;
    queue();
    session.stream().synchronize();
    return watch.seconds();
  };
  for (int warm_up = 0; warm_up < 3; ++warm_up) (void)once();
  return tool::quantiles(tool::sample(0, 21, once)).median;
}

/// From pageable pixels to the input, compared with an upload of as many pinned bytes: a photo's bytes and time.
Row measure_load(cuda::Session& session, const std::string& name, ImageSpec::Filter filter, std::int64_t batch) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> pixels(photo_bytes);
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random());
  const ImageView photo{pixels.data(), height, width, 3};
  const ImageSpec spec = stretched(filter);
  cuda::DeviceBuffer<float> memory(static_cast<std::size_t>(batch) * input_elems);
  const Tensor input = Tensor::view(DType::f32, {batch, 3, side, side}, memory.data());
  cuda::ImageInput loader;
  const auto photos = static_cast<double>(batch);
  const double load = seconds_to_finish(session,
                                        [&] {
                                          for (std::int64_t i = 0; i < batch; ++i)
                                            loader.queue(session.context(), photo, spec, input, i);
                                        }) /
                      photos;
  cuda::PinnedBuffer<std::byte> host(photo_bytes);
  cuda::DeviceBuffer<std::byte> device(photo_bytes);
  std::copy_n(reinterpret_cast<const std::byte*>(pixels.data()), photo_bytes, host.data());
  const double upload =
      seconds_to_finish(session,
                        [&] {
                          for (std::int64_t i = 0; i < batch; ++i)
                            CUDA_CHECK(cudaMemcpyAsync(device.data(), host.data(), photo_bytes, cudaMemcpyHostToDevice,
                                                       session.stream().get()));
                        }) /
      photos;
  constexpr auto bytes = static_cast<double>(photo_bytes);
  return {fmt::format("{}x{} {} to {}x{}, loaded, batch of {}", width, height, name, side, side, batch), bytes * 1e-6,
          load * 1e6, bytes / upload * 1e-9, bytes / load * 1e-9};
}

}  // namespace

std::vector<Row> photos(cuda::Session& session) {
  std::vector<Row> rows;
  for (const auto& [name, filter] :
       {std::pair{"bilinear", ImageSpec::Filter::bilinear}, {"bicubic", ImageSpec::Filter::bicubic}}) {
    rows.push_back(measure_kernel(session, name, filter));
    for (const std::int64_t batch : {1, 32}) rows.push_back(measure_load(session, name, filter, batch));
  }
  return rows;
}

}  // namespace lenslet::bench
