#include "base/format.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

namespace lenslet {
namespace {

const Format nchw8c{.channel_block = 8};
const Format nhwc4c{.order = Format::Order::channels_last, .channel_block = 4};
const Format with_halo{.order = Format::Order::channels_last, .halo = {1, 2, 0, 3}};
const Format with_pitch{.order = Format::Order::channels_last, .pixel_pitch = 20};
const Format with_both{.order = Format::Order::channels_last, .halo = {1, 2, 0, 3}, .pixel_pitch = 20};

Tensor counted(const Shape& shape) {
  Tensor tensor(DType::i32, shape);
  std::int32_t next = 1;
  for (std::int32_t& value : tensor.values<std::int32_t>()) value = next++;
  return tensor;
}

TEST_CASE("format/text_and_back") {
  for (const Format& format : {formats::nchw, formats::nhwc, nchw8c, nhwc4c, with_halo, with_pitch, with_both}) {
    CAPTURE(to_string(format));
    CHECK(parse_format(to_string(format)) == format);
  }
  CHECK(to_string(with_halo) == "nhwc+1,2,0,3");
  CHECK(to_string(nchw8c) == "nchw8c");
  CHECK(to_string(with_pitch) == "nhwc/20");
  CHECK(to_string(with_both) == "nhwc+1,2,0,3/20");
  for (const char* text : {"", "nc", "nchw1c", "nchwc", "nchw8", "nchw-8c", "nhwc+1", "nhwc+1,2,3", "nhwc+0,0,0,0",
                           "nhwc+1,1,1,1,", "nhwc/", "nhwc/0", "nhwc/-16", "nhwc/16+1,1,1,1", "nchw/16", "nhwc16",
                           "nchw99999999999999999999c", "nchw2000c", "nhwc+1,1,1,-1"})
    CHECK_FALSE(parse_format(text).has_value());
}

TEST_CASE("format/each_element_has_a_place_of_its_own") {
  const Shape shape{2, 13, 3, 5};
  for (const Format& format : {formats::nchw, formats::nhwc, nchw8c, nhwc4c, with_halo, with_pitch, with_both}) {
    CAPTURE(to_string(format));
    const Strides strides(format, shape);
    std::set<std::int64_t> places;
    for (std::int64_t n = 0; n < 2; ++n)
      for (std::int64_t c = 0; c < 13; ++c)
        for (std::int64_t h = 0; h < 3; ++h)
          for (std::int64_t w = 0; w < 5; ++w) places.insert(strides.at(n, c, h, w));
    CHECK(places.size() == 2 * 13 * 3 * 5);
    CHECK(*places.begin() >= 0);
    CHECK(*places.rbegin() < strides.stored);
  }
  CHECK(Strides(nchw8c, shape).stored == 2 * 16 * 3 * 5);
  CHECK(Strides(nhwc4c, shape).stored == 2 * 16 * 3 * 5);
  CHECK(Strides(with_halo, shape).stored == 2 * 13 * (3 + 1) * (5 + 2 + 3));
  CHECK(Strides(with_pitch, shape).stored == (2 * 3 * 5 - 1) * 20 + 13);
  CHECK(Strides(with_pitch, shape).at(1, 9, 2, 3) == ((1 * 3 + 2) * 5 + 3) * 20 + 9);
  CHECK(Strides(with_pitch, {0, 13, 3, 5}).stored == 0);
  CHECK(Strides(nchw8c, shape).at(1, 9, 2, 3) == (((1 * 2 + 1) * 3 + 2) * 5 + 3) * 8 + 1);
  CHECK(Strides(with_halo, shape).at(0, 0, 0, 0) == (1 * 10 + 2) * 13);
}

TEST_CASE("format/a_tensor_there_and_back") {
  const Tensor plain = counted({2, 13, 3, 5});
  for (const Format& format : {formats::nhwc, nchw8c, nhwc4c, with_halo, with_pitch, with_both}) {
    CAPTURE(to_string(format));
    const Tensor stored = plain.to_format(format);
    CHECK(stored.elems() == plain.elems());
    CHECK(stored.bytes() == static_cast<std::size_t>(Strides(format, plain.shape()).stored) * 4);
    const auto all = stored.values<std::int32_t>();
    CHECK(std::count(all.begin(), all.end(), 0) == static_cast<std::ptrdiff_t>(all.size()) - plain.elems());
    CHECK(std::ranges::equal(stored.to_format(formats::nchw).values<std::int32_t>(), plain.values<std::int32_t>()));
    CHECK(conversion_bytes(formats::nchw, format, plain.shape(), DType::i32) ==
          static_cast<double>(plain.bytes() + stored.bytes()));
  }
}

TEST_CASE("format/equal_bytes") {
  CHECK(same_bytes(formats::nchw, formats::nhwc, Shape{2, 1, 3, 5}));
  CHECK(same_bytes(formats::nchw, formats::nhwc, Shape{2, 7, 1, 1}));
  CHECK(same_bytes(formats::nchw, nchw8c, Shape{2, 7}));
  CHECK_FALSE(same_bytes(formats::nchw, formats::nhwc, Shape{2, 7, 3, 1}));
  CHECK_FALSE(same_bytes(formats::nhwc, with_pitch, Shape{2, 7, 3, 1}));
  CHECK_FALSE(same_bytes(formats::nchw, with_pitch, Shape{2, 1, 3, 1}));
  CHECK(same_bytes(formats::nhwc, with_pitch, Shape{1, 7, 1, 1}));
  CHECK_FALSE(same_bytes(formats::nchw, nchw8c, Shape{2, 1, 3, 5}));
  CHECK_FALSE(same_bytes(formats::nhwc, with_halo, Shape{2, 1, 3, 5}));
}

}  // namespace
}  // namespace lenslet
