// Photos become inputs on the device with the same bits as to_input() on the CPU.

#include "base/cuda/image_input.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/cuda/session.h"
#include "lenslet/error.h"
#include "tests/cuda/device_block.h"
#include "tests/cuda/device_case.h"
#include "tests/expect_error.h"

namespace lenslet {
namespace {

std::vector<std::uint8_t> random_pixels(const ImageView& size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.height * size.width * size.channels));
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random());
  return pixels;
}

void check_same(const cuda::Session& session, cuda::ImageInput& loader, ImageView image, const ImageSpec& spec,
                bool nhwc_layout, unsigned seed, DType dtype = DType::f32) {
  const std::vector<std::uint8_t> pixels = random_pixels(image, seed);
  image.pixels = pixels.data();
  const std::int64_t channels = spec.channels == ImageSpec::Channels::gray ? 1 : 3;
  const Shape shape =
      spec.nhwc ? Shape{2, spec.height, spec.width, channels} : Shape{2, channels, spec.height, spec.width};
  Tensor expected(dtype, shape, nhwc_layout ? formats::nhwc : formats::nchw);
  std::memset(expected.data(), 0xFF, expected.bytes());
  test::DeviceBlock block(expected.bytes());
  const Tensor input = Tensor::view(dtype, shape, block.data(), expected.format());
  to_input(image, spec, expected, 1);
  // The same image again uses the tables that are there; then pixels on the device, in rows with gaps.
  const std::int64_t row = image.width * image.channels, pitch = row + 5;
  std::vector<std::uint8_t> with_gaps(static_cast<std::size_t>(image.height * pitch), 0xEE);
  for (std::int64_t y = 0; y < image.height; ++y)
    std::copy_n(pixels.begin() + y * row, row, with_gaps.begin() + y * pitch);
  test::DeviceBlock pixels_there(with_gaps.data(), with_gaps.size());
  const auto* const there = reinterpret_cast<const std::uint8_t*>(pixels_there.data());
  const std::vector<std::byte> poison(expected.bytes(), std::byte{0xFF});
  for (const ImageView& view : {image, image, {there, image.height, image.width, image.channels, pitch, true}}) {
    block.write(poison.data());
    loader.queue(session.context(), view, spec, input, 1);
    session.stream().synchronize();
    CHECK(block.intact());
    // Slot 0 was not requested: both keep the poison.
    CHECK_MESSAGE(std::memcmp(block.read().data(), expected.data(), expected.bytes()) == 0, image.height, "x",
                  image.width, "x", image.channels, " to ", shape.str(), nhwc_layout ? " nhwc" : " nchw", " filter ",
                  static_cast<int>(spec.filter), " antialias ", spec.antialias, " resize ",
                  static_cast<int>(spec.resize), " on the device ", view.on_cuda);
  }
}

DEVICE_CASE("cuda/image_input/same_bits_as_cpu") {
  const cuda::Session session(0);
  cuda::ImageInput loader;
  unsigned seed = 1;
  const ImageView sizes[] = {{nullptr, 224, 224, 3}, {nullptr, 300, 401, 3}, {nullptr, 37, 61, 3},
                             {nullptr, 61, 37, 1},   {nullptr, 1, 1, 3},     {nullptr, 5, 3000, 3},
                             {nullptr, 1999, 7, 1},  {nullptr, 768, 1023, 3}};
  for (const ImageView& image : sizes)
    for (const auto filter : {ImageSpec::Filter::nearest, ImageSpec::Filter::bilinear, ImageSpec::Filter::bicubic})
      for (const bool antialias : {true, false})
        for (const auto channels : {ImageSpec::Channels::rgb, ImageSpec::Channels::bgr, ImageSpec::Channels::gray}) {
          ImageSpec spec;
          spec.height = 61;
          spec.width = 45;
          spec.resize_size = 70;
          spec.filter = filter;
          spec.antialias = antialias;
          spec.channels = channels;
          spec.scale = 1.0 / 255;
          spec.mean = {0.485};
          spec.std = {0.229};
          for (const auto resize : {ImageSpec::Resize::shorter_side, ImageSpec::Resize::stretch}) {
            spec.resize = resize;
            spec.nhwc = seed % 3 == 0;
            check_same(session, loader, image, spec, !spec.nhwc && seed % 3 == 1, seed);
            ++seed;
          }
        }
}

DEVICE_CASE("cuda/image_input/whole_picture_unresized") {
  const cuda::Session session(0);
  cuda::ImageInput loader;
  ImageSpec spec;
  spec.height = 33;
  spec.width = 65;
  spec.resize = ImageSpec::Resize::none;
  spec.mean = {1, 2, 3};
  spec.std = {4, 5, 6};
  check_same(session, loader, {nullptr, 33, 65, 3}, spec, false, 5);
  check_same(session, loader, {nullptr, 133, 165, 3}, spec, true, 6);
}

DEVICE_CASE("cuda/image_input/letterboxes") {
  const cuda::Session session(0);
  cuda::ImageInput loader;
  unsigned seed = 300;
  const ImageView sizes[] = {{nullptr, 224, 224, 3}, {nullptr, 300, 401, 3}, {nullptr, 61, 37, 1},
                             {nullptr, 1, 1, 3},     {nullptr, 5, 3000, 3},  {nullptr, 1999, 7, 1},
                             {nullptr, 45, 61, 3},   {nullptr, 1, 32768, 1}};
  for (const ImageView& image : sizes)
    for (const auto filter : {ImageSpec::Filter::nearest, ImageSpec::Filter::bilinear, ImageSpec::Filter::bicubic})
      for (const auto resize : {ImageSpec::Resize::fit, ImageSpec::Resize::longer_side, ImageSpec::Resize::none})
        for (const auto pad : {ImageSpec::Pad::center, ImageSpec::Pad::top_left})
          for (const auto channels : {ImageSpec::Channels::rgb, ImageSpec::Channels::bgr, ImageSpec::Channels::gray}) {
            ImageSpec spec;
            spec.height = 77;
            spec.width = 101;
            spec.resize = resize;
            spec.resize_size = 40;
            spec.round_down = seed % 2 == 0;
            spec.filter = filter;
            spec.channels = channels;
            spec.pad = pad;
            spec.pad_color = {114, 20, 250};
            spec.scale = 1.0 / 255;
            spec.mean = {0.485};
            spec.std = {0.229};
            spec.nhwc = seed % 3 == 0;
            check_same(session, loader, image, spec, !spec.nhwc && seed % 3 == 1, seed,
                       seed % 5 == 0 ? DType::f16 : DType::f32);
            ++seed;
          }
}

DEVICE_CASE("cuda/image_input/a_part_of_a_picture") {
  const cuda::Session session(0);
  cuda::ImageInput loader;
  const ImageView size{nullptr, 200, 301, 3};
  const std::vector<std::uint8_t> pixels = random_pixels(size, 9);
  const ImageView part = part_of({pixels.data(), 200, 301, 3}, {31, 17, 150, 201});
  ImageSpec spec;
  spec.height = spec.width = 64;
  spec.resize = ImageSpec::Resize::fit;
  spec.pad = ImageSpec::Pad::center;
  Tensor expected(DType::f32, {1, 3, 64, 64});
  to_input(part, spec, expected);
  test::DeviceBlock block(expected.bytes());
  loader.queue(session.context(), part, spec, Tensor::view(DType::f32, expected.shape(), block.data()), 0);
  session.stream().synchronize();
  CHECK(block.intact());
  CHECK(std::memcmp(block.read().data(), expected.data(), expected.bytes()) == 0);
}

DEVICE_CASE("cuda/image_input/other_types") {
  const cuda::Session session(0);
  cuda::ImageInput loader;
  ImageSpec spec;
  spec.height = 33;
  spec.width = 65;
  spec.resize_size = 70;
  spec.scale = 1.0 / 255;
  spec.mean = {0.485};
  spec.std = {0.229};
  unsigned seed = 40;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64})
    for (const bool nhwc : {false, true})
      for (const std::int64_t channels : {1, 3})
        check_same(session, loader, {nullptr, 133, 165, channels}, spec, nhwc, ++seed, dtype);
}

// Its rows at the input's width would be 50 MB.
DEVICE_CASE("cuda/image_input/a_very_high_picture") {
  const cuda::Session session(0);
  cuda::ImageInput loader;
  ImageSpec spec;
  spec.height = 4;
  spec.width = 16;
  spec.resize = ImageSpec::Resize::stretch;
  check_same(session, loader, {nullptr, 1 << 20, 1, 3}, spec, false, 60);
}

void CUDART_CB sleep_a_little(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

DEVICE_CASE("cuda/image_input/photos_in_a_row") {
  const cuda::Session session(0);
  cuda::ImageInput loader;
  ImageSpec spec;
  spec.height = spec.width = 32;
  spec.resize_size = 32;
  const Shape shape{4, 3, 32, 32};
  Tensor expected(DType::f32, shape);
  test::DeviceBlock block(expected.bytes());
  const Tensor input = Tensor::view(DType::f32, shape, block.data());
  // The device is delayed before each copy, so that a copy of the next photo's bytes would show. The third photo makes
  // the staging memory grow, the fourth is smaller.
  const std::int64_t heights[] = {60, 60, 300, 40};
  for (std::int64_t slot = 0; slot < 4; ++slot) {
    ImageView image{nullptr, heights[slot], 50, 3};
    const std::vector<std::uint8_t> pixels = random_pixels(image, 20 + static_cast<unsigned>(slot));
    image.pixels = pixels.data();
    to_input(image, spec, expected, slot);
    CUDA_CHECK(cudaLaunchHostFunc(session.stream().get(), sleep_a_little, nullptr));
    loader.queue(session.context(), image, spec, input, slot);
  }
  session.stream().synchronize();
  CHECK(block.intact());
  CHECK(std::memcmp(block.read().data(), expected.data(), expected.bytes()) == 0);
}

DEVICE_CASE("cuda/image_input/wrong_sizes_are_errors") {
  const cuda::Session session(0);
  cuda::ImageInput loader;
  const std::vector<std::uint8_t> pixels(30 * 30 * 3);
  ImageSpec spec;
  spec.resize = ImageSpec::Resize::none;
  test::DeviceBlock block(224 * 224 * 3 * 4);
  const Tensor input = Tensor::view(DType::f32, {1, 3, 224, 224}, block.data());
  const ImageView photo{pixels.data(), 30, 30, 3};
  CHECK_ERROR(loader.queue(session.context(), photo, spec, input, 0), invalid_argument,
              "an image of 30 x 30 pixels is 30 x 30 after resizing, which");
  spec.resize = ImageSpec::Resize::stretch;
  CHECK_ERROR(loader.queue(session.context(), photo, spec, input, 1), invalid_argument,
              "there is no image 1 in a batch of 1");
}

}  // namespace
}  // namespace lenslet
