#pragma once
// The matrices of Winograd's F(m x m, 3 x 3): Y = A^T [(G g G^T) . (B^T d B)] A for a tile d of alpha x alpha inputs,
// alpha = m + 2. Cook-Toom: the rows belong to evaluation points 0, +-p1, +-p2 .. and infinity.
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
// Scaling rows of B against rows of G changes nothing in floating point.

#include <array>
#include <cstddef>

namespace lenslet {

template <int M>
struct WinogradPoints;
template <>
struct WinogradPoints<2> {
  static constexpr std::array<double, 1> positive{1.0};
};
template <>
struct WinogradPoints<4> {
  static constexpr std::array<double, 2> positive{0.6875, 1.5};
};
template <>
struct WinogradPoints<6> {
  static constexpr std::array<double, 3> positive{0.5, 1.0, 2.0};
};

/// Rows in the order 0, +p1, -p1, +p2, -p2 .., infinity: the rows of a pair share their even and odd halves.
template <int M>
struct WinogradMatrices {
  static constexpr int m = M;          ///< outputs a tile, along one axis
  static constexpr int alpha = M + 2;  ///< inputs
  static constexpr int pairs = M / 2;
  std::array<std::array<double, alpha>, M> at{};      ///< A^T [m][alpha]
  std::array<std::array<double, alpha>, alpha> bt{};  ///< B^T [alpha][alpha]
  std::array<std::array<double, 3>, alpha> g{};       ///< G [alpha][3]
};

template <int M>
constexpr WinogradMatrices<M> make_winograd_matrices() {
  WinogradMatrices<M> w;
  constexpr std::size_t alpha = static_cast<std::size_t>(M) + 2;
  constexpr std::size_t finite = alpha - 1;
  std::array<double, finite> point{};
  for (std::size_t i = 0; i < WinogradPoints<M>::positive.size(); ++i) {
    point[1 + 2 * i] = WinogradPoints<M>::positive[i];
    point[2 + 2 * i] = -WinogradPoints<M>::positive[i];
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
    double power = 1;
    for (std::size_t j = 0; j < static_cast<std::size_t>(M); ++j) {
      w.at[j][i] = i < finite ? power : (j + 1 == static_cast<std::size_t>(M) ? 1.0 : 0.0);
      if (i < finite) {
        if (j < 3) w.g[i][j] = power / norm;
        power *= point[i];
      }
    }
    if (i < finite && M < 3) w.g[i][2] = point[i] * point[i] / norm;
  }
  w.g[alpha - 1] = {0, 0, 1};
  return w;
}

template <int M>
inline constexpr WinogradMatrices<M> winograd_matrices = make_winograd_matrices<M>();

}  // namespace lenslet
