// Winograd's transforms as in the kernels, on one tile: exactness in double, and float32's error compared with the
// algorithms' tolerances.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "ops/conv/winograd_filter.h"
#include "tests/larger_error.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

struct ScalarMath {
  template <typename V>
  V add(V a, V b) const {
    return a + b;
  }
  template <typename V>
  V sub(V a, V b) const {
    return a - b;
  }
  template <typename V>
  V times(float coefficient, V x) const {
    return static_cast<V>(coefficient) * x;
  }
  template <typename V>
  V plus(float coefficient, V x, V sum) const {
    return std::fma(static_cast<V>(coefficient), x, sum);
  }
};

#define WINOGRAD_INLINE inline
#include "ops/conv/winograd_transform-inl.h"
#undef WINOGRAD_INLINE

template <int M, int R>
constexpr std::size_t alpha_of = WinogradMatrices<M, R>::alpha;

/// B^T d B in place, d row-major.
template <int M, int R, typename V>
void transform_input(V* d) {
  constexpr std::size_t alpha = alpha_of<M, R>;
  V x[alpha], y[alpha];
  const auto both = [&](std::size_t step, std::size_t line) {
    for (std::size_t i = 0; i < alpha; ++i) {
      for (std::size_t j = 0; j < alpha; ++j) x[j] = d[i * line + j * step];
      input_transform<M, R>(ScalarMath(), x, y);
      for (std::size_t j = 0; j < alpha; ++j) d[i * line + j * step] = y[j];
    }
  };
  both(alpha, 1);
  both(1, alpha);
}

/// y [m][m] = A^T p A.
template <int M, int R, typename V>
void transform_output(const V* p, V* y) {
  constexpr std::size_t alpha = alpha_of<M, R>, m = M;
  V half[m][alpha], x[alpha], out[m];
  for (std::size_t j = 0; j < alpha; ++j) {
    for (std::size_t i = 0; i < alpha; ++i) x[i] = p[i * alpha + j];
    output_transform<M, R>(ScalarMath(), x, out);
    for (std::size_t i = 0; i < m; ++i) half[i][j] = out[i];
  }
  for (std::size_t i = 0; i < m; ++i) {
    output_transform<M, R>(ScalarMath(), half[i], out);
    for (std::size_t j = 0; j < m; ++j) y[i * m + j] = out[j];
  }
}

struct Errors {
  double worst = 0;  ///< relative to the rms of all outputs or, if larger, of the tile's: a tile is a filter
  double rms = 0;    ///< relative to the rms of all outputs
};

/// Tiles of rectified normal numbers with He-scaled filters: transforms, products and accumulation in V.
template <int M, int R, typename V>
Errors errors_of(std::size_t channels, int tiles, unsigned seed) {
  constexpr std::size_t alpha = alpha_of<M, R>, m = M, r = R;
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const double deviation = std::sqrt(2 / static_cast<double>(channels * r * r));
  double squares = 0, exact_squares = 0;
  std::vector<std::pair<double, double>> worst_of_tiles;  // and the mean square of the tile's outputs
  for (int tile = 0; tile < tiles; ++tile) {
    std::vector<V> products(alpha * alpha);
    double exact[m][m] = {};
    for (std::size_t c = 0; c < channels; ++c) {
      V d[alpha * alpha], x[alpha * alpha];
      float w[r * r];
      for (V& value : d) value = static_cast<V>(std::max(static_cast<float>(normal(random)), 0.0F));
      for (float& value : w) value = static_cast<float>(deviation * normal(random));
      std::copy(std::begin(d), std::end(d), x);
      transform_input<M, R>(x);
      for (std::size_t i = 0; i < alpha; ++i) {
        const auto line = winograd_filter_row<M, R>(i, w);
        for (std::size_t j = 0; j < alpha; ++j) {
          V& sum = products[i * alpha + j];
          sum = std::fma(x[i * alpha + j], static_cast<V>(winograd_filter_element<M>(j, line)), sum);
        }
      }
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < m; ++j)
          for (std::size_t a = 0; a < r; ++a)
            for (std::size_t b = 0; b < r; ++b)
              exact[i][j] += static_cast<double>(d[(i + a) * alpha + j + b]) * static_cast<double>(w[a * r + b]);
    }
    V y[m * m];
    transform_output<M, R>(products.data(), y);
    double worst = 0, tile_squares = 0;
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < m; ++j) {
        const double error = static_cast<double>(y[i * m + j]) - exact[i][j];
        squares += error * error;
        tile_squares += exact[i][j] * exact[i][j];
        worst = test::larger_error(worst, std::abs(error));
      }
    exact_squares += tile_squares;
    worst_of_tiles.emplace_back(worst, tile_squares / (M * M));
  }
  Errors errors{.rms = std::sqrt(squares / exact_squares)};
  for (const auto& [worst, mean_square] : worst_of_tiles)
    errors.worst =
        test::larger_error(errors.worst, worst / std::sqrt(std::max(mean_square, exact_squares / (tiles * M * M))));
  return errors;
}

template <int M, int R>
void check_form(double amplification) {
  CAPTURE(M);
  CAPTURE(R);
  const auto& w = winograd_matrices<M, R>;
  for (const auto& row : w.bt)
    for (const double x : row) CHECK(static_cast<double>(static_cast<float>(x)) == x);
  for (const auto& row : w.at)
    for (const double x : row) CHECK(static_cast<double>(static_cast<float>(x)) == x);
  CHECK(winograd_amplification<M, R>() == doctest::Approx(amplification).epsilon(0.01));

  const unsigned seed = random_seed();
  CAPTURE(seed);
  // In double it equals the convolution, up to double's rounding.
  CHECK(errors_of<M, R, double>(3, 50, seed).worst < 1e-12);
  // In float32 within the tolerance, which follows from the rms, and that from the amplification.
  for (const std::size_t channels : {1U, 16U, 128U, 600U}) {
    CAPTURE(channels);
    const Errors errors = errors_of<M, R, float>(channels, channels == 1 ? 1000 : 150, seed);
    const double unit = std::ldexp(winograd_amplification<M, R>(), -24), c = static_cast<double>(channels);
    CHECK(errors.worst < winograd_tolerance(M, R, static_cast<std::int64_t>(channels)));
    CHECK(errors.rms < 1.25 * unit * (1 + std::sqrt(c) / 4));
    CHECK(errors.rms > 0.1 * unit * (1 + std::sqrt(c) / 4));
  }
}

}  // namespace

TEST_CASE("conv/winograd_transform/3x3") {
  check_form<2, 3>(1.67);
  check_form<4, 3>(7.48);
  check_form<6, 3>(46.3);
}

TEST_CASE("conv/winograd_transform/5x5") {
  check_form<2, 5>(5.56);
  check_form<4, 5>(29.8);
}

TEST_CASE("conv/winograd_transform/7x7") { check_form<2, 7>(24.8); }

TEST_CASE("conv/winograd_transform/bounds_grow_with_channels_and_stay_above_the_plain_sum") {
  for (const auto& [m, r] : {std::pair<std::int64_t, std::int64_t>{2, 5}, {4, 5}, {2, 7}}) {
    CHECK(winograd_tolerance(m, r, 64) > sum_tolerance(64 * r * r));
    CHECK(winograd_tolerance(m, r, 256) > winograd_tolerance(m, r, 64));
    CHECK(winograd_tolerance(m, r, 1024) < most_winograd_tolerance);
  }
  CHECK(winograd_tolerance(2, 5, 64) < winograd_tolerance(4, 5, 64));
}

}  // namespace lenslet::test
