// The Fourier transforms of the kernels' tiles, on the host: exactness in double, and float32's error compared with the
// algorithm's tolerance.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

#include "ops/conv/cuda/fft_plan.h"
#include "tests/larger_error.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

#define FFT_INLINE inline
#include "ops/conv/cuda/fft_transform-inl.h"
#undef FFT_INLINE

/// Slots of a tile, [column][slot], and the spectra of its rows.
template <int N, typename V>
struct Tile {
  V a[N * N / 2] = {}, b[N * N / 2] = {};
  V re[N][N / 2] = {}, im[N][N / 2] = {};

  /// Of x [N][N].
  void forward(const V* x) {
    for (int row = 0; row < N; ++row) {
      for (int j = 0; j < N; ++j) (j % 2 == 0 ? re : im)[row][j / 2] = x[row * N + j];
      fft_of_reals<N>(re[row], im[row]);
    }
    for (int column = 0; column < N / 2; ++column) {
      V line_re[N], line_im[N];
      for (int i = 0; i < N; ++i) {
        line_re[i] = re[i][column];
        line_im[i] = im[i][column];
      }
      fft<N>(line_re, line_im);
      if (column == 0) fft_separate<N>(line_re, line_im);
      std::copy_n(line_re, N, a + column * N);
      std::copy_n(line_im, N, b + column * N);
    }
  }
  /// y [N][N] from products.
  void inverse(V* y) {
    for (int column = 0; column < N / 2; ++column) {
      V line_re[N], line_im[N];
      std::copy_n(a + column * N, N, line_re);
      std::copy_n(b + column * N, N, line_im);
      if (column == 0) fft_join<N>(line_re, line_im);
      fft<N>(line_im, line_re);
      for (int i = 0; i < N; ++i) {
        re[i][column] = line_re[i];
        im[i][column] = line_im[i];
      }
    }
    for (int row = 0; row < N; ++row) {
      fft_to_reals<N>(re[row], im[row]);
      for (int j = 0; j < N; ++j) y[row * N + j] = (j % 2 == 0 ? re : im)[row][j / 2];
    }
  }
};

struct Errors {
  double worst = 0, rms = 0;  ///< relative to the output's rms
  /// The rms relative to that of a sum of independent terms of these magnitudes. Rectified inputs have a mean: the
  /// output grows with the filters' sum times it, the transforms' errors do not, those of accumulation partly.
  double rms_of_terms = 0;
};

/// Tiles of normal numbers, rectified or not, with He-scaled filters: transforms, products and accumulation in V.
template <int N, typename V>
Errors errors_of(std::int64_t channels, std::int64_t r, std::int64_t s, int tiles, bool rectified, unsigned seed) {
  const ConvProblem p = resolve_conv({1, channels, N, N}, {1, channels, r, s}, {});
  const FftPlan plan = plan_fft(p, N, reference_gpu());
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const auto gemm_k = static_cast<std::size_t>(channels * r * s);
  std::vector<float> w(gemm_k), u(plan.u_floats());
  for (float& value : w) value = static_cast<float>(std::sqrt(2 / static_cast<double>(gemm_k)) * normal(random));
  fft_filters(p, plan, {.w = w.data(), .scale = nullptr, .gemm_k = static_cast<std::int64_t>(gemm_k)}, u);
  const auto c_row = static_cast<std::size_t>(plan.c), k_row = static_cast<std::size_t>(plan.k);
  std::vector<double> w_squares(static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < gemm_k; ++i) w_squares[i / static_cast<std::size_t>(r * s)] += std::pow(double{w[i]}, 2);
  double squares = 0, exact_squares = 0, term_squares = 0, worst = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    std::vector<V> sums(3 * N * N / 2), x(N * N), y(N * N);
    std::vector<double> exact(static_cast<std::size_t>(p.p * p.q));
    Tile<N, V> spectra;
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      for (V& value : x) {
        const auto drawn = static_cast<float>(normal(random));
        value = static_cast<V>(rectified ? std::max(drawn, 0.0F) : drawn);
        term_squares += w_squares[c] * std::pow(static_cast<double>(value), 2) / (N * N);
      }
      spectra.forward(x.data());
      for (std::size_t slot = 0; slot < N * N / 2; ++slot) {
        const V a = spectra.a[slot], b = spectra.b[slot], factors[] = {a + b, a, b};
        for (std::size_t part = 0; part < 3; ++part) {
          V& sum = sums[3 * slot + part];
          sum = std::fma(factors[part], static_cast<V>(u[((slot * 3 + part) * c_row + c) * k_row]), sum);
        }
      }
      const float* weight = &w[c * static_cast<std::size_t>(r * s)];
      for (std::int64_t h = 0; h < r; ++h)
        for (std::int64_t v = 0; v < s; ++v, ++weight)
          for (std::int64_t i = 0; i < p.p; ++i)
            for (std::int64_t j = 0; j < p.q; ++j)
              exact[static_cast<std::size_t>(i * p.q + j)] +=
                  static_cast<double>(x[static_cast<std::size_t>((i + h) * N + j + v)]) * double{*weight};
    }
    for (std::size_t slot = 0; slot < N * N / 2; ++slot) {
      spectra.a[slot] = sums[3 * slot] - sums[3 * slot + 2];
      spectra.b[slot] = sums[3 * slot] + sums[3 * slot + 1];
    }
    spectra.inverse(y.data());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(p.q), column = i % static_cast<std::size_t>(p.q);
      const double error = static_cast<double>(y[row * N + column]) - exact[i];
      squares += error * error;
      exact_squares += exact[i] * exact[i];
      worst = test::larger_error(worst, std::abs(error));
    }
  }
  const double outputs = static_cast<double>(tiles * p.p * p.q);
  const double error_rms = std::sqrt(squares / outputs), exact_rms = std::sqrt(exact_squares / outputs);
  return {worst / exact_rms, error_rms / exact_rms, error_rms / std::sqrt(term_squares / tiles)};
}

template <int N>
void check_size() {
  const unsigned seed = random_seed();
  CAPTURE(seed);
  for (const auto& window : {std::pair<std::int64_t, std::int64_t>{5, 5}, {7, 4}, {largest_fft_window(N), 3}}) {
    const std::int64_t r = window.first, s = window.second;
    CAPTURE(r);
    CAPTURE(s);
    // In double it equals the convolution, up to rounding the filters to float32.
    CHECK(errors_of<N, double>(3, r, s, 3, true, seed).worst < 4e-7);
    // 128 and 600 show how the error grows; one window is enough. Sanitizers (tools/test.sh) use few channels: more run
    // the same code on up to 25 times as many products.
    for (const std::int64_t channels : {1, 16, 128, 600}) {
      if (channels > 16 && std::getenv("LENSLET_TEST_REDUCED") != nullptr) continue;
      if (channels > 16 && r != 7) continue;
      CAPTURE(channels);
      const ConvProblem p = resolve_conv({1, channels, N, N}, {1, channels, r, s}, {});
      for (const bool rectified : {false, true}) {
        const Errors errors = errors_of<N, float>(channels, r, s, channels == 1 ? 20 : 3, rectified, seed);
        CHECK(errors.worst < fft_tolerance(p));
        // The tolerance follows from the rms.
        const double unit = std::ldexp(3 + std::sqrt(static_cast<double>(channels)) / 3, -24);
        CHECK(std::min(errors.rms, errors.rms_of_terms) < 1.5 * unit);
        CHECK(errors.rms_of_terms > 0.3 * unit);
      }
    }
  }
}

template <int N>
void check_lines() {
  CAPTURE(N);
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  double x[N], re[N], im[N] = {}, half_re[N / 2], half_im[N / 2];
  for (int j = 0; j < N; ++j) (j % 2 == 0 ? half_re : half_im)[j / 2] = re[j] = x[j] = normal(random);
  fft<N>(re, im);
  fft_of_reals<N>(half_re, half_im);
  for (int k = 0; k < N; ++k) {
    double exact_re = 0, exact_im = 0;
    for (int j = 0; j < N; ++j) {
      const double angle = 2 * std::numbers::pi * (j * k % N) / N;
      exact_re += x[j] * std::cos(angle);
      exact_im -= x[j] * std::sin(angle);
    }
    CHECK(re[k] == doctest::Approx(exact_re));
    CHECK(im[k] == doctest::Approx(exact_im).scale(1));
    if (k == 0) CHECK(half_re[0] == doctest::Approx(exact_re));
    if (k == N / 2) CHECK(half_im[0] == doctest::Approx(exact_re));
    if (k > 0 && k < N / 2) {
      CHECK(half_re[k] == doctest::Approx(2 * exact_re));
      CHECK(half_im[k] == doctest::Approx(2 * exact_im));
    }
    const double angle = 2 * std::numbers::pi * k / N;
    CHECK(std::abs(fft_cos(k, N) - std::cos(angle)) < 1e-15);
    CHECK(std::abs(fft_sin(k, N) - std::sin(angle)) < 1e-15);
  }
}

}  // namespace

TEST_CASE("conv/fft_transform/lines_are_what_the_definition_says") {
  check_lines<20>();
  check_lines<24>();
#ifndef LENSLET_SANITIZED
  check_lines<16>();
  check_lines<32>();
  check_lines<36>();
  check_lines<40>();
#endif
}

TEST_CASE("conv/fft_transform/tiles_err_no_more_than_is_stated") {
  static_assert(fft_sizes == std::array{16, 20, 24, 32, 36, 40});
  SUBCASE("20") { check_size<20>(); }
  SUBCASE("24") { check_size<24>(); }
#ifndef LENSLET_SANITIZED  // the two above cover all radices
  SUBCASE("16") { check_size<16>(); }
  SUBCASE("32") { check_size<32>(); }
  SUBCASE("36") { check_size<36>(); }
  SUBCASE("40") { check_size<40>(); }
#endif
}

}  // namespace lenslet::test
