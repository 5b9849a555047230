#pragma once
// Tiling of a convolution with large filters for FFTs on CUDA, and its cost model. Plain C++: tested without CUDA.
//
// Overlap-save: a tile is size x size pixels of one image, whose circular correlation with a filter has (size + 1 - r)
// x (size + 1 - s) outputs that do not wrap around. Its spectrum is size * size / 2 slots of two numbers
// (fft_transform-inl.h), which a filter's slot multiplies as one complex number or, in two of the slots, each by its
// own. With T tiles at a time:
//   V [slots][T][2][c]   the spectra of the input, a and b, from x in NHWC
//   U [slots][3][c][k]   the filters': ur, ui - ur, ur + ui; in slots of pairs 0, ua, -ub
//   M [slots][T][2][k]   the products, transformed to y in NHWC: of the sums over c of (a + b) U0, a U1 and b U2 the
//                        first less the third, and the first and the second
// Three real products replace a complex one's four. In slots of pairs M holds b ub, a ua: exchanged. c and k are C and
// K rounded up, padded with zeros.

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// Tile sizes with kernels.
inline constexpr std::array fft_sizes{16, 20, 24, 32, 36, 40};

/// A block: `lanes` channels of tiles, a thread for each of them and each of size / 2 lines.
template <int Size, int Lanes, int Resident>
struct FftBlock {
  static constexpr int size = Size, half = Size / 2, lanes = Lanes;
  static constexpr int threads = half * lanes;
  /// Row spectra in shared memory: [row][re, im][half][lanes], padded so that rows that a warp accesses together are in
  /// different banks.
  static constexpr int part = half * lanes;
  static constexpr int row = 2 * part + lanes % 32;
  static constexpr std::size_t shared_bytes = Size * row * sizeof(float);
  /// Blocks a multiprocessor, as registers allow.
  static constexpr int resident = Resident;
};
template <int Size>
struct FftBlockFor;
template <>
struct FftBlockFor<16> : FftBlock<16, 32, 3> {};
template <>
struct FftBlockFor<20> : FftBlock<20, 32, 3> {};
template <>
struct FftBlockFor<24> : FftBlock<24, 16, 4> {};
template <>
struct FftBlockFor<32> : FftBlock<32, 16, 2> {};
template <>
struct FftBlockFor<36> : FftBlock<36, 16, 2> {};
template <>
struct FftBlockFor<40> : FftBlock<40, 8, 3> {};
/// Largest filter height or width of a tile size: at least half the rows and columns are outputs.
constexpr int largest_fft_window(int size) { return size / 2 + 1; }

/// Channels of V and M are padded to multiples of this.
inline constexpr int fft_channels = 8;

/// Product tiles with kernels, in the order of `fft_product_tiles`.
enum class FftProductTile { t64x64, t64x32, t32x32 };

struct FftProductShape {
  int m = 0, n = 0;                      ///< FFT tiles (rows), complex columns
  int thread_rows = 0, thread_cols = 0;  ///< complex accumulators of a thread
  int step = 0, stages = 0;              ///< channels of a k-block, and stages
  int blocks = 0;                        ///< resident on a multiprocessor of sm_90 (registers, shared memory)
  double efficiency = 0;                 ///< share of peak of a multiprocessor without latencies
  double idle_blocks = 0;                ///< latency as blocks: n blocks take as long as n + this would at full rate
};

inline constexpr std::array<FftProductShape, 3> fft_product_tiles{{
    {64, 64, 4, 8, 16, 3, 3, 1.10, 1.4},
    {64, 32, 4, 8, 8, 4, 6, 0.94, 2.7},
    {32, 32, 4, 4, 8, 4, 8, 1.00, 3.0},
}};

constexpr const FftProductShape& shape_of(FftProductTile tile) {
  return fft_product_tiles[static_cast<std::size_t>(tile)];
}

template <FftProductTile tile>
struct FftProductTraits {
  static constexpr FftProductShape shape = shape_of(tile);
  static constexpr int m = shape.m, n = shape.n, rows = shape.thread_rows, cols = shape.thread_cols;
  static constexpr int warps_m = m / (8 * rows), threads = warps_m * (n / (4 * cols)) * 32;
  static constexpr int step = shape.step, stages = shape.stages;
  /// Rows hold a, then b; the pitch spreads 8 rows over all banks.
  static constexpr int a_pitch = 2 * step + 4;
  static constexpr int a_floats = m * a_pitch;   ///< V of a k-block: [m][a_pitch]
  static constexpr int b_floats = 3 * step * n;  ///< U of a k-block: [3][step][n]
  static constexpr int stage_floats = a_floats + b_floats;
  static constexpr std::size_t shared_bytes = stages * stage_floats * sizeof(float);
};

/// f(0) .. f(Count - 1), each index a constant.
template <std::size_t Count, typename F>
void with_index(const F& f) {
  [&]<std::size_t... indices>(std::index_sequence<indices...>) {
    (f(std::integral_constant<std::size_t, indices>()), ...);
  }
  (std::make_index_sequence<Count>());
}

struct FftPlan {
  // Follows from the problem and the tile size.
  int size = 0;                       ///< FFT tile, one of fft_sizes
  int slots = 0;                      ///< size * size / 2
  int rows_out = 0, columns_out = 0;  ///< outputs of a tile
  int down = 0, across = 0;           ///< tiles of an image
  int count = 0;                      ///< of all images
  int c = 0, k = 0;                   ///< half the row lengths of V and M
  // The configuration, and the size.
  int chunk = 0;  ///< tiles of a chunk; V and M of a chunk are the workspace
  FftProductTile tile{};

  std::size_t u_floats() const { return floats_of(3 * c) * static_cast<std::size_t>(k); }
  std::size_t v_floats() const { return floats_of(2 * c) * static_cast<std::size_t>(chunk); }
  std::size_t product_floats() const { return floats_of(2 * k) * static_cast<std::size_t>(chunk); }
  /// The configuration: "size=32 chunk=196 tile=64x32".
  std::string str() const;

 private:
  std::size_t floats_of(int row) const { return static_cast<std::size_t>(slots) * static_cast<std::size_t>(row); }
};

/// Why the problem cannot be done, or nothing.
std::optional<std::string> refuse_fft(const ConvProblem& problem);

/// All configurations; these need refuse_fft() to give nothing.
std::vector<FftPlan> fft_tilings(const ConvProblem& problem);
/// The tile size decides the bits, so it is chosen for reference_gpu().
FftPlan plan_fft(const ConvProblem& problem, const DeviceProfile& device);
/// The same with a given tile size.
FftPlan plan_fft(const ConvProblem& problem, int size, const DeviceProfile& device);
/// Reads str()'s configuration. Error(invalid_argument).
FftPlan read_fft_plan(const ConvProblem& problem, std::string_view config);

/// Microseconds of all launches.
double estimate_fft_us(const ConvProblem& problem, const FftPlan& plan, const DeviceProfile& device);

/// Bound on max |y - exact| over the rms of exact, inputs of one scale. An FFT of n numbers has a relative error of at
/// most 6.7 u log2(n) in the 2-norm (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 24.2;
/// u = 2^-24), 140 u for four passes over a tile of 40. Roundings are independent: rms 0.6 u sqrt(steps), 3 u
/// (emulated: 2.3 to 3.1 u). Times 16 for the worst output (sum_tolerance.h), times 2 for nonzero means and
/// cancellation, plus the sums over C. fft_transform_test.cpp checks it.
double fft_tolerance(const ConvProblem& problem);

/// U of `filter`, computed in double and rounded once. Includes the scale 1 / size^2 and the factors of 2 that the
/// transforms leave out.
void fft_filters(const ConvProblem& problem, const FftPlan& plan, const ConvFilter& filter, std::span<float> u);

/// Defined in fft.cu.
std::unique_ptr<const BoundKernel> bind_fft(const ConvProblem& problem, const FftPlan& plan);

}  // namespace lenslet::cuda
