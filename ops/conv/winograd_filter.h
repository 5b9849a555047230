#pragma once
// Shared by Winograd on the CPU and CUDA: the problems they take, U = G g G^T, and tolerances. r: 3, 5 or 7.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/conv/problem.h"
#include "ops/conv/winograd_matrices.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet {

/// Why F(m x m, r x r) cannot do a problem of this form, or nothing. The CPU splits dilated problems into undilated
/// ones.
inline std::optional<std::string> refuse_winograd_form(const ConvProblem& p, int r = 3) {
  if (p.r != r || p.s != r) return r == 3 ? "filter is not 3x3" : r == 5 ? "filter is not 5x5" : "filter is not 7x7";
  if (p.stride_h != 1 || p.stride_w != 1) return "stride is not 1";
  if (p.groups != 1) return "groups are not 1";
  return std::nullopt;
}

/// Errors of transforms and of sums over C, growing like sqrt(C). Rectified Gaussian input, 26x26, C = 256, worst in
/// output rms: 3.5e-6 (F2), 1.4e-5 (F4), 1.1e-4 (F6). Trained networks cancel more: F2 1.9e-5 in ResNet-50 (C = 256),
/// F6 6.5e-5 in waifu2x (C = 3).
inline double winograd_tolerance(std::int64_t m, std::int64_t channels) {
  const double c = std::sqrt(static_cast<double>(channels));
  if (m == 2) return 8e-6 + 1.2e-6 * c;
  if (m == 4) return 1e-5 + 2e-6 * c;
  return 1e-4 + 4e-6 * c;
}

/// Bound of F(m x m, r x r) for r 5 or 7 from winograd_amplification(): the sum's own bound (sum_tolerance.h) plus
/// 2^-24 * amplification * (32 + 4 sqrt(C)). The emulated rms error (rectified Gaussian input, He-scaled filters, C
/// from 1 to 1024) is below 2^-24 * amplification * (1 + sqrt(C) / 4); 16 times that, doubled for the transforms'
/// roundings, which few channels do not average (worst of 25600 at C = 1: 13 of 20). winograd_transform_test.cpp checks
/// it.
template <int M, int R>
double large_winograd_tolerance(std::int64_t channels) {
  constexpr double amplification = winograd_amplification<M, R>();
  const double c = std::sqrt(static_cast<double>(channels));
  return sum_tolerance(channels * R * R) + std::ldexp(amplification * (32 + 4 * c), -24);
}

/// Maximum over the variants on CUDA.
inline double winograd_tolerance(std::int64_t m, std::int64_t r, std::int64_t channels) {
  if (r == 3) return winograd_tolerance(m, channels);
  if (r == 7) return large_winograd_tolerance<2, 7>(channels);
  return m == 2 ? large_winograd_tolerance<2, 5>(channels) : large_winograd_tolerance<4, 5>(channels);
}

/// Largest error bound that float32 may have: a tenth of TF32's operand rounding. F(4,5) reaches it at 2000 channels,
/// F(6,5) exceeds it with one.
inline constexpr double most_winograd_tolerance = 1.0 / 2048;

/// Row i of G g for the r x r filter `w`, in double.
template <int M, int R = 3>
std::array<double, R> winograd_filter_row(std::size_t i, const float* w) {
  constexpr const auto& g = winograd_matrices<M, R>.g;
  std::array<double, R> line{};
  for (std::size_t s = 0; s < R; ++s)
    for (std::size_t r = 0; r < R; ++r) line[s] += g[i][r] * static_cast<double>(w[r * R + s]);
  return line;
}

/// Element j of that row times G^T.
template <int M, std::size_t R>
double winograd_filter_element(std::size_t j, const std::array<double, R>& line) {
  constexpr const auto& g = winograd_matrices<M, static_cast<int>(R)>.g;
  double sum = line[0] * g[j][0];
  for (std::size_t s = 1; s < R; ++s) sum += line[s] * g[j][s];
  return sum;
}

}  // namespace lenslet
