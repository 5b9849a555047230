// Vector activations compared with their definition in double, on every instruction set of this CPU.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/simd/targets.h"
#include "ops/core/activation.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/ops/simd_activation_test.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

#include "ops/core/simd/activation-inl.h"
#include "tests/larger_error.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {

void activate(const Activation& activation, float* x, std::int64_t count) { activate_f32(activation, x, count); }

void exponentials(float* x, std::int64_t count) {
  map_f32(
      hn::ScalableTag<float>(), [](auto d, auto v) HWY_ATTR { return exp_f32(d, v); }, x, x, count);
}

void short_exponentials(float* x, std::int64_t count) {
  map_f32(
      hn::ScalableTag<float>(), [](auto d, auto v) HWY_ATTR { return short_exp_f32(d, v); }, x, x, count);
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <doctest/doctest.h>

#include "tests/ops/exact_activation.h"
#include "tests/ops/for_each_target.h"

namespace lenslet {
HWY_EXPORT(activate);
HWY_EXPORT(exponentials);
HWY_EXPORT(short_exponentials);
namespace {

TEST_CASE("simd/exp/within_ulps") {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> normal(-87.3f, 88.7f), near_zero(-1, 1);
  std::vector<float> x;
  for (int i = 0; i < 100003; ++i) x.push_back(i % 4 == 0 ? near_zero(random) : normal(random));
  x.insert(x.end(), {0.0f, -0.0f, 88.72f, -87.33f, 1e-30f});
  test::for_each_target(HWY_TARGETS, [&] {
    std::vector<float> y = x;
    HWY_DYNAMIC_DISPATCH(exponentials)(y.data(), static_cast<std::int64_t>(y.size()));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
      worst = test::larger_error(worst, std::abs(y[i] - exact) / ulp);
    }
    CHECK(worst <= 1.5);
  });
}

TEST_CASE("simd/exp/edges") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  test::for_each_target(HWY_TARGETS, [&] {
    std::vector<float> x{inf, -inf, nan, 88.73f, 1e30f, -104.0f, -1e30f, -100.0f, -87.5f};
    HWY_DYNAMIC_DISPATCH(exponentials)(x.data(), static_cast<std::int64_t>(x.size()));
    CHECK(x[0] == inf);
    CHECK(x[1] == 0);
    CHECK(std::isnan(x[2]));
    CHECK(x[3] == inf);
    CHECK(x[4] == inf);
    CHECK(x[5] == 0);
    CHECK(x[6] == 0);
    CHECK(std::abs(x[7] - std::exp(-100.0)) <= 1.5e-45);  // subnormals are multiples of 1.4e-45
    CHECK(std::abs(x[8] - std::exp(-87.5)) <= 1.5e-45);
  });
}

TEST_CASE("simd/exp/short") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(3);
  std::uniform_real_distribution<float> normal(-87.3f, 88.7f), near_zero(-2, 2);
  std::vector<float> x{inf, -inf, 1e30f, -1e30f, 89.0f, -105.0f, nan};
  const std::size_t edges = x.size();
  for (int i = 0; i < 100003; ++i) x.push_back(i % 2 == 0 ? near_zero(random) : normal(random));
  test::for_each_target(HWY_TARGETS, [&] {
    std::vector<float> y = x;
    HWY_DYNAMIC_DISPATCH(short_exponentials)(y.data(), static_cast<std::int64_t>(y.size()));
    for (std::size_t i = 0; i < 6; i += 2) {
      CHECK(y[i] == inf);
      CHECK(y[i + 1] == 0);
    }
    CHECK(std::isnan(y[6]));
    double worst = 0;
    for (std::size_t i = edges; i < x.size(); ++i)
      worst = test::larger_error(worst, std::abs(y[i] / std::exp(static_cast<double>(x[i])) - 1));
    CHECK(worst <= 2.5e-7);
  });
}

TEST_CASE("simd/activation/every_kind") {
  using Kind = Activation::Kind;
  const std::vector<Activation> all{{Kind::none, 0, 0},
                                    {Kind::relu, 0, 0},
                                    {Kind::clip, 0, 6},
                                    {Kind::clip, -0.5f, 0.25f},
                                    {Kind::leaky_relu, 0.1f, 0},
                                    {Kind::leaky_relu, -0.5f, 0},
                                    {Kind::sigmoid, 0, 0},
                                    {Kind::silu, 0, 0},
                                    {Kind::hard_swish, 1.0f / 6, 0.5f},
                                    {Kind::hard_sigmoid, 0.2f, 0.5f},
                                    {Kind::affine_relu, 0.9f, -0.4f},
                                    {Kind::star_relu, 0.9f, -0.4f},
                                    {Kind::swish, 1.702f, 0},
                                    {Kind::gelu_tanh, 0, 0},
                                    {Kind::gelu, 0, 0}};
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 4);
  test::for_each_target(HWY_TARGETS, [&] {
    for (const Activation& activation : all) {
      const auto exact_of = test::exact_activation(activation);
      for (const std::int64_t count : {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 1001}) {
        // Guards on both sides: the tail must not write past the end.
        std::vector<float> buffer(static_cast<std::size_t>(count) + 32, 1234.5f);
        float* x = buffer.data() + 16;
        for (std::int64_t i = 0; i < count; ++i) x[i] = i % 50 == 0 ? 0.0f : normal(random);
        if (count > 44) x[43] = -200, x[44] = 200;
        if (count > 40) x[40] = 90, x[41] = -90, x[42] = std::numeric_limits<float>::quiet_NaN();
        const std::vector<float> before = buffer;
        HWY_DYNAMIC_DISPATCH(activate)(activation, x, count);
        CAPTURE(to_string(activation));
        CAPTURE(count);
        for (std::int64_t i = 0; i < 16; ++i) CHECK(buffer[static_cast<std::size_t>(i)] == 1234.5f);
        for (std::int64_t i = 16 + count; i < 32 + count; ++i) CHECK(buffer[static_cast<std::size_t>(i)] == 1234.5f);
        for (std::int64_t i = 0; i < count; ++i) {
          const double in = before[static_cast<std::size_t>(i) + 16], exact = exact_of(in);
          CAPTURE(in);
          if (std::isnan(in)) {
            CHECK(std::isnan(x[i]));
          } else {
            // Four roundings; where a line cancels (hard_*), relative to its terms.
            CHECK(std::abs(x[i] - exact) <= 4e-7 * std::max(std::abs(exact), std::abs(in) * 0.5));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace lenslet
#endif
