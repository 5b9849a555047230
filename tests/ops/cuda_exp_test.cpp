#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/core/exp_cuda.h"
#include "tests/larger_error.h"

using lenslet::cuda::exp_f32;

TEST_CASE("cuda_exp/against_double") {
  double worst = 0, worst_subnormal = 0;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 1009) {  // every 1009th float
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!(x > -103.9F && x < 88.72F)) continue;
    const double exact = std::exp(double{x});
    int exponent = 0;
    std::frexp(exact, &exponent);  // exact < 2^exponent
    const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
    double& most = exponent >= -125 ? worst : worst_subnormal;
    most = lenslet::test::larger_error(most, std::abs(double{exp_f32(x)} - exact) / ulp);
  }
  CHECK(worst <= 0.66);
  CHECK(worst > 0.5);  // rounding alone costs this: proves that values were compared
  CHECK(worst_subnormal <= 0.8);
}

TEST_CASE("cuda_exp/special_values") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  CHECK(exp_f32(0) == 1);
  CHECK(exp_f32(-0.0F) == 1);
  CHECK(exp_f32(1e-40F) == 1);
  CHECK(exp_f32(88.722835F) < inf);
  CHECK(exp_f32(88.72285F) == inf);
  CHECK(exp_f32(1e30F) == inf);
  CHECK(exp_f32(inf) == inf);
  CHECK(exp_f32(-103.97F) == std::numeric_limits<float>::denorm_min());
  CHECK(exp_f32(-103.98F) == 0);
  CHECK(exp_f32(-1e30F) == 0);
  CHECK(exp_f32(-inf) == 0);
  CHECK(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
}
