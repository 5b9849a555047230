#include "base/convert.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace lenslet {

namespace {

// Compares convert_elements() with convert() of each element, in rows of awkward lengths.
template <typename To, typename From>
void check_rows(DType from, DType to, const std::vector<From>& x) {
  std::vector<To> y(x.size()), wanted(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) wanted[i] = convert<To>(x[i]);
  for (std::size_t i = 0, count = 1; i < x.size(); i += count, count = count % 67 + 1) {
    count = std::min(count, x.size() - i);
    convert_elements(from, x.data() + i, to, y.data() + i, static_cast<std::int64_t>(count));
  }
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::memcmp(&y[i], &wanted[i], sizeof(To)) != 0) FAIL_CHECK(to_string(from), " ", i, " as ", to_string(to));
}

}  // namespace

TEST_CASE("convert/rows") {
  std::vector<float> floats;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 20011)
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (const float end : {-128.0F, 127.0F, 255.0F, 65504.0F, 65520.0F, 0x1p-24F, 0x1p-25F, 0x1p31F, -0x1p31F})
    for (const float x : {std::nextafter(end, -INFINITY), end, std::nextafter(end, INFINITY)}) floats.push_back(x);
  check_rows<std::int32_t>(DType::f32, DType::i32, floats);
  check_rows<std::int8_t>(DType::f32, DType::i8, floats);
  check_rows<std::uint8_t>(DType::f32, DType::u8, floats);
  check_rows<Float16>(DType::f32, DType::f16, floats);
  check_rows<BFloat16>(DType::f32, DType::bf16, floats);
  std::vector<Float16> halves;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) halves.push_back({static_cast<std::uint16_t>(bits)});
  check_rows<float>(DType::f16, DType::f32, halves);
  std::vector<BFloat16> brains;
  std::vector<float> midpoints;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    brains.push_back({static_cast<std::uint16_t>(bits)});
    for (const std::uint32_t low : {0x7FFFU, 0x8000U, 0x8001U})
      midpoints.push_back(std::bit_cast<float>(bits << 16 | low));
  }
  check_rows<float>(DType::bf16, DType::f32, brains);
  check_rows<BFloat16>(DType::f32, DType::bf16, midpoints);
}

}  // namespace lenslet
