#pragma once
// What Winograd's algorithms on the CPU and on CUDA have in common: the problems they take, U = G g G^T, and how far
// off they may be.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/conv/problem.h"
#include "ops/conv/winograd_matrices.h"

namespace lenslet {

/// Why F(m x m, 3 x 3) cannot do a problem of this form, or nothing. Dilated ones fall apart into undilated ones, which
/// the CPU's does.
inline std::optional<std::string> refuse_winograd_form(const ConvProblem& p) {
  if (p.r != 3 || p.s != 3) return "filter is not 3x3";
  if (p.stride_h != 1 || p.stride_w != 1) return "stride is not 1";
  if (p.groups != 1) return "groups are not 1";
  return std::nullopt;
}

/// Errors of the transforms and of sums over C, which grow like sqrt(C). On rectified Gaussian input of 26x26 images
/// with C = 256 the worst were 3.5e-6 (F2), 1.4e-5 (F4) and 1.1e-4 (F6) of the output's rms. In trained networks the
/// terms cancel more: F2 reached 1.9e-5 in ResNet-50 (C = 256), F6 6.5e-5 in waifu2x (C = 3).
inline double winograd_tolerance(std::int64_t m, std::int64_t channels) {
  const double c = std::sqrt(static_cast<double>(channels));
  if (m == 2) return 8e-6 + 1.2e-6 * c;
  if (m == 4) return 1e-5 + 2e-6 * c;
  return 1e-4 + 4e-6 * c;
}

/// Row i of G g for the 3x3 filter `w`, in double.
template <int M>
std::array<double, 3> winograd_filter_row(std::size_t i, const float* w) {
  constexpr const auto& g = winograd_matrices<M>.g;
  std::array<double, 3> line{};
  for (std::size_t s = 0; s < 3; ++s)
    for (std::size_t r = 0; r < 3; ++r) line[s] += g[i][r] * static_cast<double>(w[r * 3 + s]);
  return line;
}

/// Element j of that row times G^T.
template <int M>
double winograd_filter_element(std::size_t j, const std::array<double, 3>& line) {
  constexpr const auto& g = winograd_matrices<M>.g;
  return line[0] * g[j][0] + line[1] * g[j][1] + line[2] * g[j][2];
}

}  // namespace lenslet
