// Longer sides, letterboxes, tiles and boxes. Hashes are of Pillow's Image.resize (columns first, then rows) in numpy's
// padding; sizes are those of Ultralytics' LetterBox and YOLOX's preproc.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/image.h"
#include "tests/base/pattern_picture.h"
#include "tests/expect_error.h"

namespace lenslet {
namespace {

using Pad = ImageSpec::Pad;
using test::hash;
using test::pattern;
using test::Picture;
using test::Pixels;
using Resize = ImageSpec::Resize;

constexpr std::array<std::uint8_t, 3> color{10, 20, 30};

Picture plain(std::int64_t height, std::int64_t width, std::int64_t channels = 3) {
  return {height, width, channels, Pixels(static_cast<std::size_t>(height * width * channels), 200)};
}

ImageSpec letterbox(std::int64_t height, std::int64_t width, Pad pad = Pad::center) {
  ImageSpec spec;
  spec.height = height;
  spec.width = width;
  spec.resize = Resize::fit;
  spec.crop = ImageSpec::Crop::none;
  spec.pad = pad;
  spec.pad_color = color;
  return spec;
}

/// Where the pixels of a plain(height, width) are in the result. All others have to be the padding's.
Rect place_in(const ImageSpec& spec, std::int64_t height, std::int64_t width) {
  const Pixels pixels = resize_and_crop(plain(height, width).view(), spec);
  std::int64_t top = spec.height, left = spec.width, bottom = 0, right = 0, count = 0;
  for (std::int64_t y = 0; y < spec.height; ++y)
    for (std::int64_t x = 0; x < spec.width; ++x) {
      const auto at = pixels.begin() + (y * spec.width + x) * 3;
      if (std::equal(color.begin(), color.end(), at)) continue;
      REQUIRE(std::abs(*at - 200) <= 1);  // the taps of a long line, each rounded
      top = std::min(top, y), left = std::min(left, x);
      bottom = std::max(bottom, y + 1), right = std::max(right, x + 1);
      ++count;
    }
  CHECK(count == (bottom - top) * (right - left));
  return {top, left, bottom - top, right - left};
}

TEST_CASE("image/letterbox/pixels equal Pillow's and numpy's") {
  struct Case {
    std::int64_t height, width, to_height, to_width;
    Pad pad;
    bool round_down;
    std::uint64_t bilinear, bicubic;
  };
  const Case cases[] = {
      {48, 64, 33, 33, Pad::center, false, 0x82a527d52200497eu, 0x062e3c6e6f6f20dfu},
      {64, 48, 33, 33, Pad::top_left, true, 0x97b6d5e0e9f6c2d6u, 0x9a18a6110d3e90b0u},
      {37, 23, 20, 31, Pad::center, false, 0xb29fa50c8a57a6eeu, 0x863e04543e5bb401u},
      {7, 300, 24, 32, Pad::center, false, 0x7640f81598d2cf8du, 0x48461d739b561f1bu},
      {1, 500, 16, 16, Pad::center, false, 0x065940319f41d4d1u, 0xa549dd8d0151227fu},
      {9, 9, 16, 20, Pad::top_left, false, 0x8028045a2be79920u, 0xe7997bd5cf2e10e0u},
  };
  for (const Case& c : cases) {
    CAPTURE(c.height);
    CAPTURE(c.width);
    ImageSpec spec = letterbox(c.to_height, c.to_width, c.pad);
    spec.round_down = c.round_down;
    const Picture picture = pattern(c.height, c.width, 3);
    CHECK(hash(resize_and_crop(picture.view(), spec)) == c.bilinear);
    spec.filter = ImageSpec::Filter::bicubic;
    CHECK(hash(resize_and_crop(picture.view(), spec)) == c.bicubic);
    spec.channels = ImageSpec::Channels::bgr;  // to_input handles the order
    CHECK(hash(resize_and_crop(picture.view(), spec)) == c.bicubic);
    if (c.to_height == c.to_width) {
      spec.resize = Resize::longer_side;
      spec.resize_size = c.to_height;
      CHECK(hash(resize_and_crop(picture.view(), spec)) == c.bicubic);
    }
  }
}

TEST_CASE("image/letterbox/sides round as the reference implementations") {
  const auto to = [](std::int64_t side, Pad pad, bool down, std::int64_t height, std::int64_t width) {
    ImageSpec spec = letterbox(side, side, pad);
    spec.round_down = down;
    return place_in(spec, height, width);
  };
  CHECK(to(16, Pad::center, false, 5, 32) == Rect{7, 0, 2, 16});  // 2.5 -> 2
  CHECK(to(16, Pad::center, false, 7, 32) == Rect{6, 0, 4, 16});  // 3.5 -> 4
  CHECK(to(16, Pad::center, false, 32, 5) == Rect{0, 7, 16, 2});
  CHECK(to(16, Pad::center, false, 6, 32) == Rect{6, 0, 3, 16});  // of 13 rows of padding 6 are above
  CHECK(to(16, Pad::top_left, false, 6, 32) == Rect{0, 0, 3, 16});
  CHECK(to(16, Pad::top_left, true, 7, 32) == Rect{0, 0, 3, 16});     // 3.5 -> 3
  CHECK(to(640, Pad::top_left, true, 9, 77) == Rect{0, 0, 74, 639});  // YOLOX: int(77 * (640 / 77)) is 639
  CHECK(to(640, Pad::center, false, 9, 77) == Rect{282, 0, 75, 640});
  CHECK(to(16, Pad::center, false, 1, 32768) == Rect{7, 0, 1, 16});  // 0.0005 -> 1
  CHECK(to(16, Pad::center, true, 32768, 1) == Rect{0, 7, 16, 1});
  CHECK(to(1, Pad::center, false, 1, 1) == Rect{0, 0, 1, 1});
  CHECK(to(1, Pad::center, false, 300, 2) == Rect{0, 0, 1, 1});
}

TEST_CASE("image/letterbox/any size has the place that double precision gives") {
  std::mt19937 random(42);
  const auto side = [&](double most) {
    return static_cast<std::int64_t>(std::exp(std::uniform_real_distribution<>(0, std::log(most))(random)));
  };
  for (int i = 0; i < 200; ++i) {
    const std::int64_t height = side(2000), width = side(2000);
    ImageSpec spec = letterbox(side(60), side(60), i % 2 == 0 ? Pad::center : Pad::top_left);
    spec.round_down = i % 3 == 0;
    double ratio = std::min(double(spec.height) / double(height), double(spec.width) / double(width));
    if (i % 5 == 0) {
      spec.resize = Resize::longer_side;
      spec.resize_size = side(double(std::min(spec.height, spec.width)));
      ratio = double(spec.resize_size) / double(std::max(height, width));
    }
    const auto sized = [&](std::int64_t from) {
      return std::max(spec.round_down ? std::floor(double(from) * ratio) : std::rint(double(from) * ratio), 1.0);
    };
    const double new_height = sized(height), new_width = sized(width);
    const bool center = spec.pad == Pad::center;
    const double top = center ? std::rint((double(spec.height) - new_height) / 2 - 0.1) : 0,
                 left = center ? std::rint((double(spec.width) - new_width) / 2 - 0.1) : 0;
    const Rect place = place_in(spec, height, width);
    CAPTURE(height);
    CAPTURE(width);
    CAPTURE(spec.height);
    CAPTURE(spec.width);
    CHECK(place == Rect{std::int64_t(top), std::int64_t(left), std::int64_t(new_height), std::int64_t(new_width)});

    // A corner on its way into the input, and back; part of a larger picture likewise.
    const Rect part{i % 7, i % 11, height, width};
    const auto there = [&](double x, double y) {
      return Box{x / double(width) * new_width + left, y / double(height) * new_height + top, 0, 0};
    };
    const Box from{0.25 * double(width), 0, double(width), 0.75 * double(height)};
    const Box first = there(from.left, from.top), last = there(from.right, from.bottom);
    const Box back = photo_box(spec, part, {first.left, first.top, last.left, last.top});
    const auto near = [](double value) { return doctest::Approx(value).epsilon(1e-12); };
    CHECK(back.left == near(from.left + double(part.left)));
    CHECK(back.top == near(from.top + double(part.top)));
    CHECK(back.right == near(from.right + double(part.left)));
    CHECK(back.bottom == near(from.bottom + double(part.top)));
  }
}

TEST_CASE("image/letterbox/gray, a padded crop, and unresized") {
  ImageSpec spec = letterbox(3, 4);
  spec.resize = Resize::none;
  // A gray picture in colored padding.
  const Pixels colored = resize_and_crop(plain(3, 2, 1).view(), spec);
  CHECK(Pixels(colored.begin(), colored.begin() + 6) == Pixels{10, 20, 30, 200, 200, 200});
  // 0.299 * 10 + 0.587 * 20 + 0.114 * 30 = 18.15.
  spec.channels = ImageSpec::Channels::gray;
  CHECK(resize_and_crop(plain(2, 2).view(), spec) == Pixels{18, 200, 200, 18, 18, 200, 200, 18, 18, 18, 18, 18});
  // Too wide and too low.
  CHECK_ERROR(resize_and_crop(plain(1, 6).view(), spec), invalid_argument,
              "an image of 6 x 1 pixels is 6 x 1 after resizing, which cannot be padded to the input size 4 x 3");
  spec.crop = ImageSpec::Crop::center;
  CHECK(resize_and_crop(pattern(1, 6, 1).view(), spec) == Pixels{18, 18, 18, 18, 91, 182, 17, 108, 18, 18, 18, 18});
  const Box corner = photo_box(spec, {0, 0, 1, 6}, {0, 0, 4, 3});
  CHECK(corner.left == 1);
  CHECK(corner.top == -1);
  CHECK(corner.right == 5);
  CHECK(corner.bottom == 2);
}

TEST_CASE("image/letterbox/the padding is normalised as pixels are") {
  const Picture picture = plain(2, 2);
  for (const bool bgr : {false, true})
    for (const bool nhwc : {false, true}) {
      ImageSpec spec = letterbox(2, 3, Pad::top_left);
      spec.channels = bgr ? ImageSpec::Channels::bgr : ImageSpec::Channels::rgb;
      spec.nhwc = nhwc;
      spec.scale = 0.5;
      spec.mean = {1, 2, 3};
      spec.std = {4, 5, 6};
      Tensor input(DType::f32, nhwc ? Shape{1, 2, 3, 3} : Shape{1, 3, 2, 3});
      to_input(picture.view(), spec, input);
      for (std::size_t c = 0; c < 3; ++c) {
        const double pixel = color[bgr ? 2 - c : c];
        CHECK(input.values<float>()[nhwc ? 2 * 3 + c : c * 6 + 2] ==
              static_cast<float>((pixel * 0.5 - spec.mean[c]) / spec.std[c]));
      }
    }
}

TEST_CASE("image/letterbox/what does not fit is refused") {
  const Picture picture = plain(30, 40);
  ImageSpec spec = letterbox(30, 40, Pad::none);
  CHECK_NOTHROW(resize_and_crop(picture.view(), spec));
  spec.resize = Resize::longer_side;
  spec.resize_size = 40;
  CHECK_NOTHROW(resize_and_crop(picture.view(), spec));
  spec.resize_size = 39;
  CHECK_ERROR(resize_and_crop(picture.view(), spec), invalid_argument,
              "an image of 40 x 30 pixels is 39 x 29 after resizing, which is not the input size 40 x 30");
  spec.resize_size = 0;
  CHECK_ERROR(resize_and_crop(picture.view(), spec), invalid_argument, "the longer side cannot be resized to 0");
  spec.pad = static_cast<Pad>(3);
  CHECK_ERROR(resize_and_crop(picture.view(), spec), invalid_argument, "ImageSpec::pad has no value 3");
}

TEST_CASE("image/boxes/of crops and stretched photos") {
  ImageSpec spec;  // 100 x 300 -> 256 x 768, cropped to 224 x 224 from (16, 272)
  const Box cropped = photo_box(spec, {0, 0, 100, 300}, {0, 0, 224, 112});
  CHECK(cropped.left == doctest::Approx(272 * 100.0 / 256));
  CHECK(cropped.top == doctest::Approx(16 * 100.0 / 256));
  CHECK(cropped.right == doctest::Approx((272 + 224) * 100.0 / 256));
  CHECK(cropped.bottom == doctest::Approx((16 + 112) * 100.0 / 256));
  spec.resize = Resize::stretch;
  const Box stretched = photo_box(spec, {5, 7, 100, 300}, {0, 112, 224, 224});
  CHECK(stretched.left == 7);
  CHECK(stretched.top == doctest::Approx(55));
  CHECK(stretched.right == doctest::Approx(307));
  CHECK(stretched.bottom == doctest::Approx(105));
  spec.resize = Resize::none;
  CHECK_ERROR(photo_box(spec, {0, 0, 100, 300}, {}), invalid_argument, "an image of 300 x 100 pixels is 300 x 100");
  CHECK_ERROR(photo_box(spec, {0, 0, 0, 300}, {}), invalid_argument, "the image is 300 x 0 pixels");
}

TEST_CASE("image/tiles/cover the picture, and the last ones end at its edge") {
  CHECK(image_tiles(10, 10, 4, 6, 2) == std::vector<Rect>{{0, 0, 4, 6},
                                                          {0, 4, 4, 6},
                                                          {2, 0, 4, 6},
                                                          {2, 4, 4, 6},
                                                          {4, 0, 4, 6},
                                                          {4, 4, 4, 6},
                                                          {6, 0, 4, 6},
                                                          {6, 4, 4, 6}});
  CHECK(image_tiles(5, 9, 4, 4, 0) ==
        std::vector<Rect>{{0, 0, 4, 4}, {0, 4, 4, 4}, {0, 5, 4, 4}, {1, 0, 4, 4}, {1, 4, 4, 4}, {1, 5, 4, 4}});
  CHECK(image_tiles(3, 4, 4, 4, 3) == std::vector<Rect>{{0, 0, 3, 4}});
  for (std::int64_t size = 1; size < 40; ++size)
    for (std::int64_t tile = 1; tile < 12; ++tile)
      for (std::int64_t overlap = 0; overlap < tile; ++overlap) {
        const std::vector<Rect> tiles = image_tiles(size, 1, tile, 12, overlap);
        std::int64_t end = overlap;
        for (const Rect& one : tiles) {
          REQUIRE(one.height == std::min(size, tile));
          REQUIRE((one.top == end - overlap || one.top + one.height == size));
          REQUIRE(one.top <= end - overlap);
          REQUIRE(one.top + one.height > end - (end == overlap ? overlap : 0));  // none is inside another
          end = one.top + one.height;
        }
        REQUIRE(end == size);
      }
  CHECK_ERROR(image_tiles(10, 10, 4, 6, 4), invalid_argument, "tiles of 6 x 4 pixels cannot overlap by 4");
  CHECK_ERROR(image_tiles(10, 10, 4, 6, -1), invalid_argument, "tiles of 6 x 4 pixels cannot overlap by -1");
  CHECK_ERROR(image_tiles(10, 0, 4, 6, 1), invalid_argument, "tiles of 6 x 4 pixels in a picture of 0 x 10");
  CHECK_ERROR(image_tiles(INT64_MAX, INT64_MAX, 1, 1, 0), limit, "more than a million");
}

TEST_CASE("image/tiles/a part gives the pixels of its copy") {
  for (const std::int64_t channels : {1, 3}) {
    const Picture whole = pattern(31, 43, channels);
    const Rect part{4, 9, 20, 30};
    Picture copy{part.height, part.width, channels, {}};
    for (std::int64_t y = 0; y < part.height; ++y) {
      const auto row = whole.pixels.begin() + ((part.top + y) * whole.width + part.left) * channels;
      copy.pixels.insert(copy.pixels.end(), row, row + part.width * channels);
    }
    const ImageView view = part_of(part_of(whole.view(), {2, 4, 29, 39}), {2, 5, 20, 30});
    for (const auto filter : {ImageSpec::Filter::nearest, ImageSpec::Filter::bilinear, ImageSpec::Filter::bicubic})
      for (const auto order : {ImageSpec::Channels::rgb, ImageSpec::Channels::gray})
        for (const std::int64_t side : {11, 64}) {
          ImageSpec spec = letterbox(side, side);
          spec.filter = filter;
          spec.channels = order;
          CHECK(resize_and_crop(view, spec) == resize_and_crop(copy.view(), spec));
        }
    ImageSpec spec = letterbox(20, 30);
    if (channels == 1) spec.channels = ImageSpec::Channels::gray;
    CHECK(resize_and_crop(view, spec) == copy.pixels);
    for (const Rect& outside : {Rect{0, 0, 32, 1}, Rect{31, 0, 1, 1}, Rect{-1, 0, 2, 2}, Rect{0, 1, 1, 43},
                                Rect{0, 0, 0, 1}, Rect{0, INT64_MAX, 1, INT64_MAX}})
      CHECK_ERROR(part_of(whole.view(), outside), invalid_argument, "not inside an image of 43 x 31");
    ImageView wrong = whole.view();
    wrong.row_bytes = 43 * channels - 1;
    CHECK_ERROR(resize_and_crop(wrong, spec), invalid_argument, "rows of 43 pixels");
    wrong.row_bytes = INT64_MAX / 2;
    CHECK_ERROR(resize_and_crop(wrong, spec), invalid_argument, "rows of 43 pixels");
  }
}

}  // namespace
}  // namespace lenslet
