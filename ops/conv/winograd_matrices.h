#pragma once
// The matrices of Winograd's F(m x m, r x r): Y = A^T [(G g G^T) . (B^T d B)] A for a tile d of alpha x alpha inputs,
// alpha = m + r - 1, even. Cook-Toom: the rows belong to evaluation points 0, +-p1, +-p2 .. and infinity.
// S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin, S. Gray, arXiv:1509.09308.
//
// Choice of points, by the error of fp32 transforms and products against fp64 (rectified Gaussian input, C = 256,
// He-scaled filters transformed in double; worst of 14400 and rms, relative to the output's rms):
//   F(2)  0 +-1              worst 1.7e-6  rms 4.3e-7
//   F(4)  0 +-1 +-2          worst 1.7e-5  rms 2.2e-6
//         0 +-1/2 +-1        worst 2.6e-5  rms 2.4e-6
//         0 +-sqrt(1/2) +-sqrt(2)  5.8e-6      1.2e-6
//         0 +-11/16 +-3/2    like the roots (best of all pairs of sixteenths: 0.6 against 0.6 at C = 64), and every
//                            coefficient of A and B is exact in fp32: taken
//   F(6)  0 +-1/2 +-1 +-2    worst 3.9e-5  rms 5.0e-6: best of all triples of eighths
//                            (2/8 to 3) and of sixteenths (5/16 to 11/4) by rms, the next 5.34e-6 against 5.31e-6 in a
//                            second search with other data; by the worst of 14000 they differ only as samples do; taken
// 5x5 and 7x7 filters, C = 64, best of all pairs and triples of sixteenths by rms (200 tiles, 16 filters):
//   F(2,5)  0 +-11/16 +-3/2  worst 3.0e-6  rms 6.5e-7: the best are alike (0.65 to 0.77)
//   F(4,5)  0 +-1/2 +-1 +-2  worst 2.3e-5  rms 2.6e-6: the same (the next 2.75)
//   F(2,7)  0 +-1/2 +-1 +-2  worst 1.6e-5  rms 2.8e-6: the same (the next 3.4)
//   F(6,5)  0 +-3/8 +-7/8 +-5/4 +-5/2, of eighths: worst 2.1e-4  rms 1.5e-5, six times those of F(4,5): not made
// So the points are those of alpha, whatever m and r. Scaling rows of B against rows of G changes nothing in floating
// point.

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
    // Row i of B^T: the coefficients of the product of (x - point) over all other finite points (infinity: over all).
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

/// By how much the transforms enlarge an error: the rms of a tile's roundings over what the same roundings are of the
/// sum itself, where inputs, filters and roundings are independent. A product of row i of both axes has the rms
/// |B^T_i| |G_i|, each axis, and enters output j by at[j][i]: the sum over i of (at[j][i] |B^T_i| |G_i|)^2, over the
/// sum's own r, is the square of one axis's factor, so that it is that of both; the worst j.
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
