#include "ops/normalization/normalize_rows.h"

#include <algorithm>
#include <type_traits>

#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "base/dtypes.h"
#include "ops/core/activation.cuh"
#include "ops/normalization/normalize_held_images.h"
#include "ops/normalization/normalize_short_rows.h"
#include "ops/reduce/rows.cuh"

namespace lenslet::cuda {

namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_threads;
constexpr int half_pack = 8;  ///< halves of a load, where length and addresses allow it
/// Loads in flight a thread.
template <int pack>
constexpr int unroll = pack == 1 ? 4 : 1;

/// Count, mean and sum of squared distances from the mean.
struct Moments {
  double count = 0, mean = 0, squares = 0;
};

__device__ double sum_over_warp(double value) {
  for (int mask = 1; mask < warp_threads; mask *= 2) value += shuffle_xor(value, mask);
  return value;
}

/// How rows are split: at most a warp's number of pieces, and enough blocks for an H200. Lengths in elements.
struct Pieces {
  std::int64_t length = 1;
  int count = 1;
};

/// Pieces of a multiple of `pack`, which are no more than those of 1.
Pieces pieces_of(std::int64_t rows, std::int64_t length, int pack = 1) {
  constexpr std::int64_t blocks_wanted = 1056, least_length = 4096;
  const std::int64_t wanted = std::clamp<std::int64_t>(blocks_wanted / std::max<std::int64_t>(1, rows), 1,
                                                       std::min<std::int64_t>(warp_threads, 1 + length / least_length));
  Pieces pieces;
  pieces.length = std::max<std::int64_t>(1, (length + wanted - 1) / wanted);
  pieces.length = (pieces.length + pack - 1) / pack * pack;
  pieces.count = static_cast<int>(std::max<std::int64_t>(1, (length + pieces.length - 1) / pieces.length));
  return pieces;
}

/// Grid: (rows, pieces). Sums are taken around the row's first element, so that a mean far from zero cancels; if not
/// centered, around zero, so that an infinity spoils only the row's sum of squares. Rows are read in packs.
template <int pack, typename T>
__global__ void __launch_bounds__(threads)
    row_moments(const T* x, Moments* moments, bool centered, std::int64_t length, Pieces pieces) {
  wait_for_previous();
  const std::int64_t row = blockIdx.x, first = blockIdx.y * pieces.length;
  const std::int64_t end = first + pieces.length < length ? first + pieces.length : length;
  const T* from = x + row * length;
  const double center = centered ? static_cast<double>(loaded(from[0])) : 0.0;
  double sum = 0, squares = 0;
  using Pack = Floats<pack, T>;
  take_turns<unroll<pack>, 2>(
      first / pack + threadIdx.x, end / pack, threads, Pack{},
      [&](std::int64_t i) { return reinterpret_cast<const Pack*>(from)[i]; },
      [&](const Pack& values, std::int64_t i) {
#pragma unroll
        for (int k = 0; k < pack; ++k) {
          const double distance = i * pack < end ? static_cast<double>(loaded(values.at[k])) - center : 0.0;
          sum += distance;
          squares += distance * distance;
        }
      });
  sum = sum_over_warp(sum);
  squares = sum_over_warp(squares);
  __shared__ double shared[2][warps];
  if (threadIdx.x % warp_threads == 0) {
    shared[0][threadIdx.x / warp_threads] = sum;
    shared[1][threadIdx.x / warp_threads] = squares;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;  // with all threads, as in join_row(), it takes half as many registers again
  for (int warp = 1; warp < warps; ++warp) {
    sum += shared[0][warp];
    squares += shared[1][warp];
  }
  const auto count = static_cast<double>(end - first);
  Moments here;
  here.count = count;
  here.mean = centered ? center + sum / count : 0.0;
  const double spread = centered ? squares - sum * sum / count : squares;
  here.squares = spread < 0 ? 0 : spread;  // NaN stays: fmax would drop it
  moments[row * pieces.count + blockIdx.y] = here;
}

/// The same grid. Each block merges its row's pieces again: cheaper than a kernel for it.
template <int pack, typename T, typename Affine>
__global__ void __launch_bounds__(threads) map_rows(const T* x, T* y, const Moments* moments, Affine affine,
                                                    float epsilon, std::int64_t length, Pieces pieces) {
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  __shared__ RowMap shared;
  if (threadIdx.x < warp_threads) {
    Moments piece;
    if (static_cast<int>(threadIdx.x) < pieces.count) piece = moments[row * pieces.count + threadIdx.x];
    const auto count = static_cast<double>(length);
    const double mean = sum_over_warp(piece.count * piece.mean) / count, distance = piece.mean - mean;
    const double squares = sum_over_warp(piece.squares + piece.count * distance * distance);
    if (threadIdx.x == 0) {
      const double deviation = row_deviation(squares, count, epsilon);
      if (blockIdx.y == 0) affine.keep(row, mean, deviation);
      shared = RowMap(mean, deviation, affine.of_row(row));
    }
  }
  __syncthreads();
  const RowMap map = shared;
  const std::int64_t first = blockIdx.y * pieces.length;
  const std::int64_t end = first + pieces.length < length ? first + pieces.length : length;
  using Pack = Floats<pack, T>;
  const auto* from = reinterpret_cast<const Pack*>(x + row * length);
  auto* to = reinterpret_cast<Pack*>(y + row * length);
  take_turns<unroll<pack>, 2>(
      first / pack + threadIdx.x, end / pack, threads, Pack{}, [&](std::int64_t i) { return from[i]; },
      [&](const Pack& values, std::int64_t i) {
        Pack result;
        if (i * pack < end) {
#pragma unroll
          for (int k = 0; k < pack; ++k)
            result.at[k] = as_stored<T>(affine.of_element(map(loaded(values.at[k])), row, i * pack + k));
          to[i] = result;
        }
      });
}

/// An Affine with an activation behind it.
template <typename Affine>
struct Activated : Affine {
  DeviceActivation activation;
  __device__ float of_element(float y, std::int64_t row, std::int64_t i) const {
    return activation(Affine::of_element(y, row, i));
  }
};
template <typename Affine>
constexpr bool may_be_activated = std::is_same_v<Affine, AffineOfChannel> || std::is_same_v<Affine, AffineOfGroup>;

/// An Affine with a residual [rows, length] behind it.
template <typename Affine, typename T>
struct Added : Affine {
  const T* residual;
  std::int64_t length;
  __device__ float of_element(float y, std::int64_t row, std::int64_t i) const {
    return Affine::of_element(y, row, i) + loaded(residual[row * length + i]);
  }
};
template <typename Affine>
constexpr bool may_be_added_to = std::is_base_of_v<AffineOfElement, Affine>;

struct Add {
  __device__ double operator()(double a, double b) const { return a + b; }
};

/// A Map of map_held_rows.
template <typename Affine>
struct NormalizeHeld {
  static constexpr float filler = 0;
  Affine affine;
  float epsilon;

  template <int pack>
  __device__ void operator()(Floats<pack> (&values)[held_packs], const RowMember& here) const {
    __shared__ double all_squares[held_threads / warp_threads];
    const double length = here.packs * pack;
    double mean = 0, squares = 0;
    if constexpr (Affine::centered) {
      __shared__ double sums[held_threads / warp_threads];
      double sum = 0;
#pragma unroll
      for (int i = 0; i < held_packs; ++i)
#pragma unroll
        for (int k = 0; k < pack; ++k) sum += static_cast<double>(values[i].at[k]);
      mean = here.join(sum, sums, Add{}) / length;
    }
    // Distances are rounded to float, as in RowMap: otherwise the loop above keeps its doubles, and spills.
    const auto center = static_cast<float>(mean);
#pragma unroll
    for (int i = 0; i < held_packs; ++i)
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        const double distance = here.inside(i) ? static_cast<double>(values[i].at[k] - center) : 0.0;
        squares += distance * distance;
      }
    const double shift = mean - static_cast<double>(center);
    squares = here.join(squares, all_squares, Add{}) - length * shift * shift;
    if (here.row < 0) return;
    const double deviation = row_deviation(squares < 0 ? 0 : squares, length, epsilon);
    if (here.member == 0) affine.keep(here.row, mean, deviation);
    const RowMap map(mean, deviation, affine.of_row(here.row));
#pragma unroll
    for (int i = 0; i < held_packs; ++i)
#pragma unroll
      for (int k = 0; k < pack; ++k)
        if (here.inside(i)) values[i].at[k] = affine.of_element(map(values[i].at[k]), here.row, here.at(i) * pack + k);
  }
};

template <typename T>
__global__ void __launch_bounds__(threads) widen_elements(const T* x, float* y, std::int64_t count) {
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) y[i] = widened(x[i]);
}

template <int pack, typename T, typename Affine>
void normalize_long_rows(const Context& context, const Affine& affine, float epsilon, std::int64_t rows,
                         std::int64_t length, const T* x, T* y, Moments* moments) {
  const Pieces pieces = pieces_of(rows, length, pack);
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(pieces.count));
  launch(context, row_moments<pack, T>, grid, dim3(threads), 0, x, moments, Affine::centered, length, pieces);
  launch(context, map_rows<pack, T, Affine>, grid, dim3(threads), 0, x, y, moments, affine, epsilon, length, pieces);
}

}  // namespace

void widen(const Context& context, DType dtype, const void* x, float* y, std::int64_t count) {
  if (count == 0) return;
  dispatch(dtype, HalfTypes(), [&]<typename T>(std::type_identity<T>) {
    launch(context, widen_elements<T>, dim3(blocks_for(count, threads)), dim3(threads), 0, static_cast<const T*>(x), y,
           count);
  });
}

template <typename Affine>
std::size_t normalize_rows_workspace_bytes(std::int64_t rows, std::int64_t length) {
  if (Affine::may_be_held && fits_held(length)) return 0;
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(pieces_of(rows, length).count) * sizeof(Moments);
}

namespace {

template <typename T, typename Affine>
void normalize_rows_of(const Context& context, const Affine& affine, float epsilon, std::int64_t rows,
                       std::int64_t length, DType dtype, const T* x, T* y, std::byte* workspace) {
  if constexpr (Affine::may_be_held)
    if (map_if_held(context, x, y, rows, length, NormalizeHeld<Affine>{affine, epsilon})) return;
  if (length == 0) return;
  if constexpr (std::is_same_v<Affine, AffineOfPixel>)
    if (affine.clusters &&
        normalize_held_images(context, dtype, x, y, affine.scale, affine.bias, epsilon, rows, length, affine.channels))
      return;
  auto* moments = reinterpret_cast<Moments*>(workspace);
  if constexpr (is_half<T>)
    if (length % half_pack == 0 && quad_aligned(x, y))
      return normalize_long_rows<half_pack>(context, affine, epsilon, rows, length, x, y, moments);
  normalize_long_rows<1>(context, affine, epsilon, rows, length, x, y, moments);
}

}  // namespace

template <typename Affine>
void normalize_rows(const Context& context, const Affine& affine, float epsilon, std::int64_t rows, std::int64_t length,
                    DType dtype, const void* from, void* to, std::byte* workspace, const Activation& activation,
                    const void* residual) {
  if (rows == 0) return;
  if constexpr (may_be_added_to<Affine>)
    if (affine.mean == nullptr && affine.inverse_deviation == nullptr &&
        normalize_short_rows(context, dtype, Affine::centered, from, to, affine.scale, affine.bias, residual, epsilon,
                             rows, length))
      return;
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    const auto with = [&](const auto& of) {
      normalize_rows_of(context, of, epsilon, rows, length, dtype, static_cast<const T*>(from), static_cast<T*>(to),
                        workspace);
    };
    if constexpr (may_be_activated<Affine>)
      if (activation.kind != Activation::Kind::none)
        return with(Activated<Affine>{affine, DeviceActivation(activation)});
    if constexpr (may_be_added_to<Affine>)
      if (residual != nullptr) return with(Added<Affine, T>{affine, static_cast<const T*>(residual), length});
    with(affine);
  });
}

#define LENSLET_INSTANTIATE(AFFINE)                                                                                  \
  template std::size_t normalize_rows_workspace_bytes<AFFINE>(std::int64_t, std::int64_t);                           \
  template void normalize_rows(const Context&, const AFFINE&, float, std::int64_t, std::int64_t, DType, const void*, \
                               void*, std::byte*, const Activation&, const void*);
LENSLET_INSTANTIATE(AffineOfChannel)
LENSLET_INSTANTIATE(AffineOfElement)
LENSLET_INSTANTIATE(AffineOfGroup)
LENSLET_INSTANTIATE(AffineOfPixel)
LENSLET_INSTANTIATE(RmsAffineOfElement)
#undef LENSLET_INSTANTIATE

}  // namespace lenslet::cuda
