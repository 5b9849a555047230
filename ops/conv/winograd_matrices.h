#pragma once
// The matrices of Winograd's F(m x m, r x r): Y = A^T [(G g G^T) . (B^T d B)] A for a tile d of alpha x alpha inputs,
// alpha = m + r - 1, even. Cook-Toom: the rows belong to evaluation points 0, +-p1, +-p2 .. and infinity.
// S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin, S. Gray, arXiv:1509.09308.
//
// The points of an alpha are those of the least fp32 error by a search; figures of all candidates:
// docs/results/winograd-points.csv. 3x3: F(2) 0 +-1, F(4) 0 +-11/16 +-3/2, F(6) 0 +-1/2 +-1 +-2; 5x5 and 7x7 use those
// of the same alpha. All coefficients of A and B are exact in fp32. F(6,5) has six times the error of F(4,5) and is not
// made. Scaling rows of B against rows of G changes nothing in floating point.

#include <array>
#include <cstddef>

namespace lenslet {

template <int Alpha>
struct WinogradPoints;
template <>
struct WinogradPoints<4> {
  static constexpr std::array<double, 1> positive{1.0};
};
template <>
struct WinogradPoints<6> {
  static constexpr std::array<double, 2> positive{0.6875, 1.5};
};
template <>
struct WinogradPoints<8> {
  static constexpr std::array<double, 3> positive{0.5, 1.0, 2.0};
};

/// Rows in the order 0, +p1, -p1, +p2, -p2 .., infinity: the rows of a pair share their even and odd halves.
template <int M, int R = 3>
struct WinogradMatrices {
  static constexpr int m = M;              ///< outputs a tile, along one axis
  static constexpr int alpha = M + R - 1;  ///< inputs
  static constexpr int pairs = alpha / 2 - 1;
  std::array<std::array<double, alpha>, M> at{};      ///< A^T [m][alpha]
  std::array<std::array<double, alpha>, alpha> bt{};  ///< B^T [alpha][alpha]
  std::array<std::array<double, R>, alpha> g{};       ///< G [alpha][r]
};

template <int M, int R = 3>
constexpr WinogradMatrices<M, R> make_winograd_matrices() {
  WinogradMatrices<M, R> w;
  using Points = WinogradPoints<M + R - 1>;
  constexpr std::size_t m = M, r = R;
  constexpr std::size_t alpha = m + r - 1;
  constexpr std::size_t finite = alpha - 1;
  std::array<double, finite> point{};
  for (std::size_t i = 0; i < Points::positive.size(); ++i) {
    point[1 + 2 * i] = Points::positive[i];
    point[2 + 2 * i] = -Points::positive[i];
  }
  for (std::size_t i = 0; i < alpha; ++i) {
    // Row i of B^T: coefficients of the product of (x - point) over all other finite points (infinity: over all).
    std::array<double, alpha> polynomial{};
    polynomial[0] = 1;
    double norm = 1;
    for (std::size_t k = 0; k < finite; ++k) {
      if (k == i) continue;
      for (std::size_t degree = alpha - 1; degree > 0; --degree)
        polynomial[degree] = polynomial[degree - 1] - point[k] * polynomial[degree];
      polynomial[0] *= -point[k];
      if (i < finite) norm *= point[i] - point[k];
    }
    w.bt[i] = polynomial;
    if (i == finite) break;
    double power = 1;
    for (std::size_t j = 0; j < m || j < r; ++j, power *= point[i]) {
      if (j < m) w.at[j][i] = power;
      if (j < r) w.g[i][j] = power / norm;
    }
  }
  w.at[m - 1][finite] = 1;
  w.g[finite][r - 1] = 1;
  return w;
}

template <int M, int R = 3>
inline constexpr WinogradMatrices<M, R> winograd_matrices = make_winograd_matrices<M, R>();

/// Error amplification: rms of a tile's rounding errors over that of the direct sum, with independent inputs, filters
/// and roundings. A product of row i has rms |B^T_i| |G_i| an axis and enters output j by at[j][i]; the sum over i of
/// (at[j][i] |B^T_i| |G_i|)^2 over r is the square of one axis's factor, hence that of both; the worst j.
template <int M, int R = 3>
constexpr double winograd_amplification() {
  constexpr const auto& w = winograd_matrices<M, R>;
  const auto squares = [](const auto& row) {
    double sum = 0;
    for (const double x : row) sum += x * x;
    return sum;
  };
  double worst = 0;
  for (const auto& row : w.at) {
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) sum += row[i] * row[i] * squares(w.bt[i]) * squares(w.g[i]);
    if (sum > worst) worst = sum;
  }
  return worst / R;
}

}  // namespace lenslet
