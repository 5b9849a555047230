// check_rounds_to_tf32() distinguishes kernels that round x to TF32 from those that truncate it. Needs no device.

#include "tests/cuda/tf32_rounding.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ops/core/sum_tolerance.h"

namespace lenslet::test {
namespace {

/// Adds `added` and clears the last 13 bits; 0x1000 rounds to nearest, ties away from zero.
float shortened(float x, std::uint32_t added) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + added) & ~0x1FFFU);
}

std::vector<float> shortened(const std::vector<float>& x, std::uint32_t added) {
  std::vector<float> y;
  for (const float value : x) y.push_back(shortened(value, added));
  return y;
}

/// Error of a sum of x times ones, relative to the sum of magnitudes or of squares, as stated tolerances are.
double error_of_sum(const std::vector<float>& x, std::uint32_t added) {
  double exact = 0, got = 0, squares = 0;
  for (const float value : x) {
    exact += double{value};
    got += double{shortened(value, added)};
    squares += double{value} * double{value};
  }
  return std::abs(got - exact) / std::max(std::abs(exact), std::sqrt(squares));
}

}  // namespace

TEST_CASE("cuda/tf32_rounding/times_one_tells_rounding_from_cutting_off") {
  std::mt19937 random(39);
  std::normal_distribution<float> normal;
  std::vector<float> x{0, -0.0F, 1, -1.5F, 0x1.002p0F, 0x1.006p0F};  // the last two are ties
  while (x.size() < 1000) x.push_back(normal(random));
  CHECK(not_rounded_to_tf32(x, shortened(x, 0x1000)) == 0);
  CHECK(not_rounded_to_tf32(x, shortened(x, 0x0FFF)) == 0);  // ties towards zero
  const std::size_t cut_off = not_rounded_to_tf32(x, shortened(x, 0));
  CHECK(cut_off > 400);
  CHECK(cut_off < 600);
  CHECK(not_rounded_to_tf32(x, shortened(x, 0x1FFF)) > 400);  // away from zero
  CHECK(not_rounded_to_tf32(x, x) > 900);                     // truncated
  CHECK(not_rounded_to_tf32(x, std::vector<float>(x.size(), std::nanf(""))) == x.size());
}

// Not even truncation with the largest loss for each x, all of one sign, shows in a sum.
TEST_CASE("cuda/tf32_rounding/no_sum_tells") {
  const std::vector<float> x(576, std::bit_cast<float>(0x3F801FFFU));
  CHECK(error_of_sum(x, 0) > 0.99 * 0x1p-10);
  CHECK(error_of_sum(x, 0) < tf32_sum_tolerance(576));
}

}  // namespace lenslet::test
