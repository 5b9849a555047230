// Expected pixels come from Pillow 9.4 (Image.resize on the pattern below); larger pictures are compared by hash.

#include "lenslet/image.h"

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "tests/base/pattern_picture.h"
#include "tests/shared_data.h"

namespace lenslet {
namespace {

using Filter = ImageSpec::Filter;
using test::hash;
using test::pattern;
using test::Picture;
using test::Pixels;

ImageSpec stretch(std::int64_t height, std::int64_t width, Filter filter, std::int64_t channels = 3) {
  ImageSpec spec;
  spec.height = height;
  spec.width = width;
  spec.resize = ImageSpec::Resize::stretch;
  spec.crop = ImageSpec::Crop::none;
  spec.filter = filter;
  if (channels == 1) spec.channels = ImageSpec::Channels::gray;
  return spec;
}

ErrorKind kind_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  FAIL("nothing was thrown");
  return ErrorKind::internal;
}

TEST_CASE("image/resize/small pictures equal Pillow's") {
  struct Case {
    std::int64_t height, width, channels, new_height, new_width;
    Filter filter;
    Pixels expected;
  };
  const Case cases[] = {
      {7, 5, 3, 4, 3, Filter::bilinear, {63,  116, 163, 107, 160, 112, 95,  148, 154, 101, 154, 150,
                                         129, 127, 139, 105, 128, 159, 104, 157, 181, 106, 104, 157,
                                         93,  116, 169, 174, 150, 84,  164, 143, 136, 75,  128, 123}},
      {7, 5, 3, 4, 3, Filter::bicubic, {61,  113, 167, 107, 168, 109, 93,  150, 151, 101, 156, 151,
                                        136, 122, 133, 109, 126, 160, 98,  159, 187, 104, 95,  157,
                                        96,  113, 173, 181, 152, 77,  169, 153, 141, 70,  127, 121}},
      {7, 5, 3, 4, 3, Filter::nearest, {0,   53,  106, 182, 235, 32,  108, 161, 214, 74, 127, 180,
                                        116, 169, 222, 81,  134, 187, 148, 201, 254, 50, 103, 156,
                                        54,  107, 160, 222, 19,  72,  243, 40,  93,  30, 83,  136}},
      {3, 4, 1, 5, 7, Filter::bilinear, {0,   33, 85,  137, 170, 76,  17,  15,  50,  106, 116, 115,
                                         93,  80, 37,  76,  138, 84,  32,  119, 174, 59,  102, 170,
                                         129, 81, 102, 115, 74,  119, 192, 159, 113, 90,  75}},
      {3, 4, 1, 5, 7, Filter::bicubic, {0,   20, 79,  158, 189, 66,  0,   8,   40,  103, 124, 119,
                                        90,  73, 28,  75,  145, 81,  24,  123, 186, 53,  104, 182,
                                        135, 74, 100, 120, 67,  119, 202, 176, 119, 81,  63}},
      {3, 4, 1, 5, 7, Filter::nearest, {0,   0,   91, 91, 182, 17,  17,  0,   0,   91, 91, 182,
                                        17,  17,  37, 37, 146, 146, 21,  174, 174, 74, 74, 201,
                                        201, 116, 75, 75, 74,  74,  201, 201, 116, 75, 75}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.filter);
    const auto spec = stretch(c.new_height, c.new_width, c.filter, c.channels);
    CHECK(resize_and_crop(pattern(c.height, c.width, c.channels).view(), spec) == c.expected);
  }
}

TEST_CASE("image/resize/larger pictures equal Pillow's") {
  struct Case {
    std::int64_t height, width, channels, new_height, new_width;
    Filter filter;
    std::uint64_t expected;
  };
  const Case cases[] = {
      {97, 61, 3, 24, 24, Filter::bilinear, 0xb38c9d28cd9b2d41u},
      {61, 97, 3, 40, 130, Filter::bicubic, 0xff57bd114062fa18u},
      {97, 61, 1, 200, 7, Filter::bicubic, 0x05fc05acd75c8ad7u},
      {300, 2, 1, 3, 50, Filter::bilinear, 0x0262fa47bb4488a2u},
      {61, 97, 3, 45, 29, Filter::nearest, 0xa13723f75e9b4c8eu},
      {1, 1, 3, 16, 16, Filter::bicubic, 0x65c18237193e0e25u},
  };
  for (const Case& c : cases) {
    CAPTURE(c.height);
    CAPTURE(c.width);
    const auto spec = stretch(c.new_height, c.new_width, c.filter, c.channels);
    CHECK(hash(resize_and_crop(pattern(c.height, c.width, c.channels).view(), spec)) == c.expected);
  }
}

TEST_CASE("image/resize/shorter side and center crop round as the reference scripts") {
  struct Case {
    std::int64_t height, width, shorter, crop_height, crop_width;
    std::uint64_t rgb, gray;
  };
  // The last two have an odd margin: (25-24)/2 = 0.5 -> 0 and (25-22)/2 = 1.5 -> 2, halves to even.
  const Case cases[] = {
      {40, 61, 32, 28, 28, 0x9a797bbe2e498e76u, 0x4ec288a4a6d6ddffu},
      {53, 37, 25, 18, 23, 0x327a1895a13415c5u, 0x245e5f3b74142ebbu},
      {37, 53, 25, 23, 18, 0x3c6c1197d32ded61u, 0xf322ea5e7feb8a2du},
      {30, 30, 25, 24, 24, 0x758d8d2729fe1465u, 0xe6684d0e4e20ea59u},
      {30, 30, 25, 22, 22, 0xbdc2842c4aad6f5bu, 0xad6f852058e7fdb1u},
  };
  for (const Case& c : cases) {
    CAPTURE(c.height);
    ImageSpec spec;
    spec.height = c.crop_height;
    spec.width = c.crop_width;
    spec.resize_size = c.shorter;
    const Picture picture = pattern(c.height, c.width, 3);
    CHECK(hash(resize_and_crop(picture.view(), spec)) == c.rgb);
    spec.channels = ImageSpec::Channels::bgr;  // to_input handles the order
    CHECK(hash(resize_and_crop(picture.view(), spec)) == c.rgb);
    spec.channels = ImageSpec::Channels::gray;
    CHECK(hash(resize_and_crop(picture.view(), spec)) == c.gray);
  }
}

TEST_CASE("image/resize/without antialias a reduction samples two taps") {
  // 8 -> 2: centers at 2.0 and 6.0, half way between pixels 1, 2 and 5, 6.
  const Picture row{1, 8, 1, {0, 10, 30, 200, 200, 50, 71, 255}};
  ImageSpec spec = stretch(1, 2, Filter::bilinear, 1);
  spec.antialias = false;
  CHECK(resize_and_crop(row.view(), spec) == Pixels{20, 61});
  spec.antialias = true;
  CHECK(resize_and_crop(row.view(), spec) != Pixels{20, 61});
  // Enlarging gives the same with and without antialiasing.
  ImageSpec larger = stretch(9, 11, Filter::bicubic);
  const Pixels expected = resize_and_crop(pattern(5, 6, 3).view(), larger);
  larger.antialias = false;
  CHECK(resize_and_crop(pattern(5, 6, 3).view(), larger) == expected);
}

TEST_CASE("image/resize/same size and no resize copy the pixels") {
  const Picture picture = pattern(9, 12, 3);
  CHECK(resize_and_crop(picture.view(), stretch(9, 12, Filter::bicubic)) == picture.pixels);
  ImageSpec spec;
  spec.height = 9;
  spec.width = 12;
  spec.resize = ImageSpec::Resize::none;
  spec.crop = ImageSpec::Crop::none;
  CHECK(resize_and_crop(picture.view(), spec) == picture.pixels);
  spec.crop = ImageSpec::Crop::center;
  spec.height = spec.width = 1;
  CHECK(resize_and_crop(picture.view(), spec) ==
        Pixels{picture.pixels.begin() + (4 * 12 + 6) * 3, picture.pixels.begin() + (4 * 12 + 6) * 3 + 3});
}

TEST_CASE("image/resize/gray gives three equal channels") {
  const Picture gray = pattern(20, 14, 1);
  const Pixels rgb = resize_and_crop(gray.view(), stretch(6, 5, Filter::bilinear));
  const Pixels plain = resize_and_crop(gray.view(), stretch(6, 5, Filter::bilinear, 1));
  REQUIRE(rgb.size() == plain.size() * 3);
  for (std::size_t i = 0; i < rgb.size(); ++i) CHECK(rgb[i] == plain[i / 3]);
}

TEST_CASE("image/resize/extreme proportions cost no more than the crop") {
  ImageSpec spec;  // the whole resized picture would be 256 x 8388608
  const Picture line = pattern(1, 32768, 3);
  CHECK(resize_and_crop(line.view(), spec).size() == 224 * 224 * 3);
}

#ifndef LENSLET_SANITIZED  // sanitizers need the address space
TEST_CASE("image/resize/a picture of any height takes memory for the result alone") {
  ImageSpec spec = stretch(4, 16, Filter::bilinear);
  spec.antialias = true;
  const Pixels pixels(std::size_t{3} << 22, 77);  // all rows at the width of the result would be 200 MB
  std::ifstream status("/proc/self/statm");
  std::uint64_t pages = 0;
  status >> pages;
  REQUIRE(pages > 0);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  rlimit lowered = before;
  lowered.rlim_cur = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + (100 << 20);
  REQUIRE(setrlimit(RLIMIT_AS, &lowered) == 0);
  Pixels result;
  CHECK_NOTHROW(result = resize_and_crop({pixels.data(), 1 << 22, 1, 3}, spec));
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(result.size() == 4 * 16 * 3);
  // With this many taps, each rounded, the sum is slightly off 1.
  for (const std::uint8_t pixel : result) CHECK(std::abs(pixel - 77) <= 10);
}
#endif

TEST_CASE("image/resize/what cannot be is refused") {
  const Picture picture = pattern(9, 12, 3);
  ImageSpec spec;
  spec.resize_size = 200;
  CHECK(kind_of([&] { resize_and_crop(picture.view(), spec); }) == ErrorKind::invalid_argument);
  spec.resize_size = 0;
  CHECK(kind_of([&] { resize_and_crop(picture.view(), spec); }) == ErrorKind::invalid_argument);
  spec.resize_size = 256;
  spec.crop = ImageSpec::Crop::none;
  CHECK(kind_of([&] { resize_and_crop(picture.view(), spec); }) == ErrorKind::invalid_argument);
  spec.crop = ImageSpec::Crop::center;
  CHECK(kind_of([&] { resize_and_crop({picture.pixels.data(), 9, 12, 4}, spec); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { resize_and_crop({picture.pixels.data(), 0, 12, 3}, spec); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { resize_and_crop({nullptr, 9, 12, 3}, spec); }) == ErrorKind::invalid_argument);
}

TEST_CASE("image/spec/values that no enumerator has are refused") {
  const Picture picture = pattern(4, 4, 3);
  ImageSpec good;
  good.height = good.width = 4;
  good.resize_size = 4;
  Tensor input(DType::f32, Shape{1, 3, 4, 4});
  CHECK_NOTHROW(to_input(picture.view(), good, input));
  for (const int value : {-1, 3, 1 << 30})
    for (const int field : {0, 1, 2, 3, 4}) {
      ImageSpec spec = good;
      if (field == 0) spec.channels = static_cast<ImageSpec::Channels>(value);
      if (field == 1) spec.resize = static_cast<ImageSpec::Resize>(value == 3 ? 5 : value);
      if (field == 2) spec.filter = static_cast<ImageSpec::Filter>(value);
      if (field == 3) spec.crop = static_cast<ImageSpec::Crop>(value == 3 ? 2 : value);
      if (field == 4) spec.pad = static_cast<ImageSpec::Pad>(value);
      CAPTURE(field);
      CHECK_THROWS_WITH_AS(to_input(picture.view(), spec, input), doctest::Contains("has no value"), Error);
      CHECK_THROWS_WITH_AS(resize_and_crop(picture.view(), spec), doctest::Contains("has no value"), Error);
    }
}

TEST_CASE("image/resize/shared photos, prepared crops stay themselves") {
  LENSLET_REQUIRE_SHARED(folder, "images/prepared-224");
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    REQUIRE(bytes.size() == 15 + 224 * 224 * 3);
    const Pixels pixels(bytes.begin() + 15, bytes.end());
    ImageSpec spec;
    spec.resize_size = 224;
    CHECK(resize_and_crop({pixels.data(), 224, 224, 3}, spec) == pixels);
    ++seen;
  }
  CHECK(seen == 18);
}

TEST_CASE("image/to_input/channel order, layout and slot") {
  const Picture picture = pattern(4, 5, 3);
  for (const bool bgr : {false, true})
    for (const int layout : {0, 1, 2}) {  // [N,C,H,W] in nchw, the same in nhwc, [N,H,W,C]
      ImageSpec spec = stretch(4, 5, Filter::bilinear);
      spec.channels = bgr ? ImageSpec::Channels::bgr : ImageSpec::Channels::rgb;
      spec.nhwc = layout == 2;
      spec.scale = 1.0 / 255;
      spec.mean = {0.485, 0.456, 0.406};
      spec.std = {0.229, 0.224, 0.225};
      const Shape shape = spec.nhwc ? Shape{3, 4, 5, 3} : Shape{3, 3, 4, 5};
      Tensor input(DType::f32, shape, layout == 1 ? formats::nhwc : formats::nchw);
      for (float& value : input.values<float>()) value = -7;
      to_input(picture.view(), spec, input, 1);
      const auto values = input.values<float>();
      for (std::size_t i = 0; i < 60; ++i) {
        REQUIRE(values[i] == -7);
        REQUIRE(values[120 + i] == -7);
      }
      for (std::size_t y = 0; y < 4; ++y)
        for (std::size_t x = 0; x < 5; ++x)
          for (std::size_t c = 0; c < 3; ++c) {
            const double pixel = picture.pixels[(y * 5 + x) * 3 + (bgr ? 2 - c : c)];
            const auto wanted = static_cast<float>((pixel * (1.0 / 255) - spec.mean[c]) / spec.std[c]);
            REQUIRE(values[60 + (layout == 0 ? (c * 4 + y) * 5 + x : (y * 5 + x) * 3 + c)] == wanted);
          }
    }
}

TEST_CASE("image/to_input/other floats are the float32 input converted") {
  const Picture picture = pattern(4, 5, 3);
  ImageSpec spec = stretch(4, 5, Filter::bilinear);
  spec.scale = 1.0 / 255;
  spec.mean = {0.485, 0.456, 0.406};
  spec.std = {0.229, 0.224, 0.225};
  for (const Format& format : {formats::nchw, formats::nhwc}) {
    Tensor input(DType::f32, {2, 3, 4, 5}, format);
    for (float& value : input.values<float>()) value = -7;
    const Tensor blank = input.clone();
    to_input(picture.view(), spec, input, 1);
    for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
      Tensor other = blank.to_dtype(dtype);
      to_input(picture.view(), spec, other, 1);
      CHECK(std::memcmp(other.data(), input.to_dtype(dtype).data(), other.bytes()) == 0);
    }
  }
}

TEST_CASE("image/to_input/gray with one mean, refusals") {
  const Picture picture = pattern(4, 4, 1);
  ImageSpec spec = stretch(4, 4, Filter::bilinear, 1);
  Tensor input(DType::f32, {1, 1, 4, 4});
  to_input(picture.view(), spec, input);  // the default mean of three zeros works for one channel, too
  CHECK(input.values<float>()[5] == static_cast<float>(picture.pixels[5]));
  spec.mean = {10};
  spec.std = {2};
  to_input(picture.view(), spec, input);
  CHECK(input.values<float>()[5] == (static_cast<float>(picture.pixels[5]) - 10) / 2);

  CHECK(kind_of([&] { to_input(picture.view(), spec, input, 1); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { to_input(picture.view(), spec, input, -1); }) == ErrorKind::invalid_argument);
  spec.mean = {1, 2};
  CHECK(kind_of([&] { to_input(picture.view(), spec, input); }) == ErrorKind::invalid_argument);
  spec.mean = {1};
  spec.std = {0};
  CHECK(kind_of([&] { to_input(picture.view(), spec, input); }) == ErrorKind::invalid_argument);
  spec.std = {1};
  Tensor wrong_shape(DType::f32, {1, 3, 4, 4}), wrong_type(DType::u8, {1, 1, 4, 4}), none;
  CHECK(kind_of([&] { to_input(picture.view(), spec, wrong_shape); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { to_input(picture.view(), spec, wrong_type); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { to_input(picture.view(), spec, none); }) == ErrorKind::invalid_argument);
}

TEST_CASE("image/softmax") {
  std::vector<float> scores{1, 2, 3};
  softmax(scores);
  const double total = std::exp(-2.0) + std::exp(-1.0) + 1;
  CHECK(scores[0] == static_cast<float>(std::exp(-2.0) / total));
  CHECK(scores[2] == static_cast<float>(1 / total));
  std::vector<float> large{1e30f, 1e30f, -1e30f};  // no overflow
  softmax(large);
  CHECK(large == std::vector<float>{0.5f, 0.5f, 0.0f});
  softmax({});
}

TEST_CASE("image/top_k/order, ties and NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> scores{1, nan, 5, 5, -2, nan};
  std::vector<std::int64_t> order;
  for (const ClassScore& score : top_k(scores, 99)) order.push_back(score.index);
  CHECK(order == std::vector<std::int64_t>{2, 3, 0, 4, 1, 5});
  const auto two = top_k(scores, 2);
  REQUIRE(two.size() == 2);
  CHECK(two[1].index == 3);
  CHECK(two[1].score == 5);
  CHECK(top_k(scores, 0).empty());
}

}  // namespace
}  // namespace lenslet
