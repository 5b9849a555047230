// 16-bit floating point: every bit pattern, and rounding at every midpoint.

#include "base/half.h"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>
#include <limits>

using namespace lenslet;

namespace {

constexpr unsigned patterns = 65536;

// The definition: (-1)^s * 1.m * 2^(e - bias), with subnormals, infinities and NaN.
double defined(unsigned bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & top;
  const double fraction = std::ldexp(static_cast<double>(bits & ((1U << mantissa_bits) - 1U)), -mantissa_bits);
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  if (exponent == top) return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

struct Format {
  int exponent_bits, mantissa_bits;
  float (*to_f32)(std::uint16_t);
  std::uint16_t (*from_f32)(float);
  std::uint16_t (*from_f64)(double);
  unsigned infinity() const { return ((1U << exponent_bits) - 1U) << mantissa_bits; }
};

constexpr Format f16{5, 10, f32_from_f16, f16_from_f32, f16_from_f64};
constexpr Format bf16{8, 7, f32_from_bf16, bf16_from_f32, bf16_from_f64};

// The checks count failures: 65536 assertions each would hide the one that matters.
void check_all_patterns(const Format& format) {
  unsigned wrong_value = 0, wrong_back = 0, wrong_back_f64 = 0;
  for (unsigned bits = 0; bits < patterns; ++bits) {
    const float value = format.to_f32(static_cast<std::uint16_t>(bits));
    const double exact = defined(bits, format.exponent_bits, format.mantissa_bits);
    if (std::isnan(exact)) {
      const std::uint16_t back = format.from_f32(value), back_f64 = format.from_f64(value);
      wrong_value += !std::isnan(value);
      wrong_back += !std::isnan(format.to_f32(back)) || (back & 0x8000U) != (bits & 0x8000U);
      wrong_back_f64 += !std::isnan(format.to_f32(back_f64));
      continue;
    }
    wrong_value += static_cast<double>(value) != exact || std::signbit(value) != ((bits & 0x8000U) != 0);
    wrong_back += format.from_f32(value) != bits;
    wrong_back_f64 += format.from_f64(static_cast<double>(value)) != bits;
  }
  CHECK(wrong_value == 0);
  CHECK(wrong_back == 0);
  CHECK(wrong_back_f64 == 0);
}

// Between neighbours: just below the midpoint rounds down, the midpoint to even, just above rounds up.
void check_all_midpoints(const Format& format) {
  unsigned wrong = 0;
  for (unsigned bits = 0; bits < format.infinity(); ++bits) {
    const double low = defined(bits, format.exponent_bits, format.mantissa_bits);
    // Above the largest finite value the next step would be infinity's position on the number line.
    const double step = defined(bits + 1, format.exponent_bits, format.mantissa_bits) == INFINITY
                            ? low - defined(bits - 1, format.exponent_bits, format.mantissa_bits)
                            : defined(bits + 1, format.exponent_bits, format.mantissa_bits) - low;
    const double middle = low + step / 2;
    const unsigned even = (bits & 1U) == 0 ? bits : bits + 1;
    for (const unsigned sign : {0U, 0x8000U}) {
      const double s = sign != 0 ? -1 : 1;
      wrong += format.from_f64(s * middle) != (sign | even);
      wrong += format.from_f64(s * std::nextafter(middle, 0)) != (sign | bits);
      wrong += format.from_f64(s * std::nextafter(middle, INFINITY)) != (sign | (bits + 1));
      if (static_cast<double>(static_cast<float>(middle)) != middle) continue;
      const auto f = static_cast<float>(middle);
      wrong += format.from_f32(static_cast<float>(s) * f) != (sign | even);
      wrong += format.from_f32(static_cast<float>(s) * std::nextafter(f, 0.0F)) != (sign | bits);
      wrong += format.from_f32(static_cast<float>(s) * std::nextafter(f, INFINITY)) != (sign | (bits + 1));
    }
  }
  CHECK(wrong == 0);
}

static_assert(f16_from_f32(1.0F) == 0x3C00 && f32_from_f16(0x3C00) == 1.0F && bf16_from_f32(1.0F) == 0x3F80);

}  // namespace

TEST_CASE("half/f16_every_pattern") { check_all_patterns(f16); }
TEST_CASE("half/bf16_every_pattern") { check_all_patterns(bf16); }
TEST_CASE("half/f16_every_midpoint") { check_all_midpoints(f16); }
TEST_CASE("half/bf16_every_midpoint") { check_all_midpoints(bf16); }

TEST_CASE("half/beyond_the_range") {
  for (const Format& format : {f16, bf16}) {
    const auto infinity = static_cast<std::uint16_t>(format.infinity());
    CHECK(format.from_f64(1e300) == infinity);
    CHECK(format.from_f64(-1e300) == (infinity | 0x8000));
    CHECK(format.from_f64(std::numeric_limits<double>::infinity()) == infinity);
    CHECK(format.from_f32(std::numeric_limits<float>::max()) == infinity);
    CHECK(format.from_f64(1e-300) == 0);
    CHECK(format.from_f64(-1e-300) == 0x8000);
    CHECK(format.from_f64(-0.0) == 0x8000);
  }
}
