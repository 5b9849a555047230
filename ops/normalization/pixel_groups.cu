// Two launches: moments of each group and chunk of pixels, then the map, whose blocks merge the chunks of their groups.
// Sums are taken in double, around the group's first element of the image, so that a mean far from zero cancels.
#include <algorithm>

#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "base/dtypes.h"
#include "ops/core/activation.cuh"
#include "ops/normalization/normalize_rows.h"
#include "ops/normalization/pixel_groups.h"
#include "ops/reduce/rows.cuh"

namespace lenslet::cuda {

namespace {

constexpr int threads = PixelBlocks::threads, warps = threads / warp_threads;
static_assert(PixelBlocks::most_chunks <= warp_threads);

/// Mean and sum of squared distances from it.
struct Moments {
  double mean, squares;
};
static_assert(sizeof(Moments) == 2 * sizeof(double));

__device__ double sum_over_warp(double value) {
  for (int mask = 1; mask < warp_threads; mask *= 2) value += shuffle_xor(value, mask);
  return value;
}

/// PixelGroups and PixelBlocks as a kernel argument. Grid: (slabs of all images, chunks).
struct Cut {
  std::int64_t pixels, x_pixel, y_pixel, chunk;
  int parts, slab, slabs, columns, rows, chunks;
  float epsilon;
  bool affine_of_group;
};

/// What the block and the thread have.
struct Place {
  std::int64_t image, first, end;  ///< pixels of the chunk
  int first_group, row, column;    ///< row: at least Cut::rows if the thread has nothing

  __device__ explicit Place(const Cut& cut) {
    const int thread = static_cast<int>(threadIdx.x), across = min(cut.columns, threads);
    image = blockIdx.x / cut.slabs;
    first_group = static_cast<int>(blockIdx.x % cut.slabs) * cut.slab;
    first = blockIdx.y * cut.chunk;
    end = first + cut.chunk < cut.pixels ? first + cut.chunk : cut.pixels;
    row = thread / across;
    column = thread % across;
  }
};

/// `cells` of a thread: 1 if a pack lies in one group, else one for each of its channels.
template <int pack, int cells, typename T>
__global__ void __launch_bounds__(threads) pixel_moments(const T* x, Moments* moments, Cut cut) {
  wait_for_previous();
  using Pack = Floats<pack, T>;
  __shared__ double all[2][threads * cells];
  const Place here(cut);
  const T* const image =
      x + here.image * cut.pixels * cut.x_pixel + static_cast<std::int64_t>(here.first_group) * cut.parts;
  const auto center_of = [&](int group) {
    return static_cast<double>(loaded(image[static_cast<std::int64_t>(group) * cut.parts]));
  };
  double centers[cells], sums[cells] = {}, squares[cells] = {};
#pragma unroll
  for (int k = 0; k < cells; ++k) {
    const int channel = here.column * pack + k;
    centers[k] = center_of(cut.slab == 1 ? 0 : channel / cut.parts);
  }
  if (here.row < cut.rows)
    for (int column = here.column; column < cut.columns; column += threads)
      take_turns<4>(
          here.first + here.row, here.end, cut.rows, Pack{},
          [&](std::int64_t p) { return *reinterpret_cast<const Pack*>(image + p * cut.x_pixel + column * pack); },
          [&](const Pack& values, std::int64_t p) {
#pragma unroll
            for (int k = 0; k < pack; ++k) {
              constexpr bool one = cells == 1;
              const int cell = one ? 0 : k;
              const double distance = p < here.end ? static_cast<double>(loaded(values.at[k])) - centers[cell] : 0.0;
              sums[cell] += distance;
              squares[cell] += distance * distance;
            }
          });
#pragma unroll
  for (int k = 0; k < cells; ++k) {
    all[0][static_cast<int>(threadIdx.x) * cells + k] = sums[k];
    all[1][static_cast<int>(threadIdx.x) * cells + k] = squares[k];
  }
  __syncthreads();
  // A warp a group: `span` adjacent cells of each row of `width`.
  const int width = min(cut.columns, threads) * cells;
  const int span = cut.slab == 1 ? width : cut.parts / (pack / cells);
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const double count = static_cast<double>(here.end - here.first) * cut.parts;
  for (int group = static_cast<int>(threadIdx.x) / warp_threads; group < cut.slab; group += warps) {
    double sum = 0, square = 0;
    for (int i = lane; i < cut.rows * span; i += warp_threads) {
      const int at = i / span * width + group * span + i % span;
      sum += all[0][at];
      square += all[1][at];
    }
    sum = sum_over_warp(sum);
    square = sum_over_warp(square);
    if (lane != 0) continue;
    const double spread = square - sum * sum / count;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * cut.slab + group;
    moments[row * cut.chunks + blockIdx.y] = {center_of(group) + sum / count, spread < 0 ? 0 : spread};  // NaN stays
  }
}

template <int pack, typename T>
__device__ void activate_pack(const DeviceActivation& activation, float (&values)[pack]) {
  if constexpr (is_half<T>) {
    activation.apply_for_halves(values);
  } else if constexpr (pack == 4) {
    const float4 y = activation(make_float4(values[0], values[1], values[2], values[3]));
    values[0] = y.x;
    values[1] = y.y;
    values[2] = y.z;
    values[3] = y.w;
  } else {
#pragma unroll
    for (int k = 0; k < pack; ++k) values[k] = activation(values[k]);
  }
}

template <int pack, typename T>
__global__ void __launch_bounds__(threads) map_pixels(const T* x, T* y, const Moments* moments, const float* scale,
                                                      const float* bias, Cut cut, DeviceActivation activation) {
  wait_for_previous();
  using Pack = Floats<pack, T>;
  __shared__ RowMap maps[threads];
  const Place here(cut);
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const double length = static_cast<double>(cut.pixels) * cut.parts;
  for (int group = static_cast<int>(threadIdx.x) / warp_threads; group < cut.slab; group += warps) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * cut.slab + group;
    Moments chunk{0, 0};
    double count = 0;
    if (lane < cut.chunks) {
      const std::int64_t rest = cut.pixels - lane * cut.chunk;
      count = static_cast<double>(rest < cut.chunk ? rest : cut.chunk) * cut.parts;
      chunk = moments[row * cut.chunks + lane];
    }
    const double mean = sum_over_warp(count * chunk.mean) / length, distance = chunk.mean - mean;
    const double squares = sum_over_warp(chunk.squares + count * distance * distance);
    if (lane == 0) maps[group] = RowMap(mean, row_deviation(squares, length, cut.epsilon), {1, 0});
  }
  __syncthreads();
  if (here.row >= cut.rows) return;
  const std::int64_t channel = static_cast<std::int64_t>(here.first_group) * cut.parts;
  const T* const from = x + here.image * cut.pixels * cut.x_pixel + channel;
  T* const to = y + here.image * cut.pixels * cut.y_pixel + channel;
  for (int column = here.column; column < cut.columns; column += threads) {
    RowMap map[pack];
    float scales[pack], biases[pack];
#pragma unroll
    for (int k = 0; k < pack; ++k) {
      const int group = cut.slab == 1 ? 0 : (column * pack + k) / cut.parts;
      const std::int64_t parameter = cut.affine_of_group ? here.first_group + group : channel + column * pack + k;
      map[k] = maps[group];
      scales[k] = scale[parameter];
      biases[k] = bias[parameter];
    }
    take_turns<2>(
        here.first + here.row, here.end, cut.rows, Pack{},
        [&](std::int64_t p) { return *reinterpret_cast<const Pack*>(from + p * cut.x_pixel + column * pack); },
        [&](const Pack& stored, std::int64_t p) {
          if (p >= here.end) return;
          float values[pack];
#pragma unroll
          for (int k = 0; k < pack; ++k) values[k] = map[k](loaded(stored.at[k])) * scales[k] + biases[k];
          activate_pack<pack, T>(activation, values);
          Pack result;
#pragma unroll
          for (int k = 0; k < pack; ++k) result.at[k] = as_stored<T>(values[k]);
          *reinterpret_cast<Pack*>(to + p * cut.y_pixel + column * pack) = result;
        });
  }
}

}  // namespace

void normalize_pixels(const Context& context, const PixelGroups& of, const float* scale, const float* bias, DType dtype,
                      const void* x, void* y, std::byte* workspace) {
  if (of.empty()) return;
  const PixelBlocks blocks(of, dtype);
  const Cut cut{.pixels = of.pixels,
                .x_pixel = of.x_pixel,
                .y_pixel = of.y_pixel,
                .chunk = blocks.chunk,
                .parts = static_cast<int>(of.parts),
                .slab = blocks.slab,
                .slabs = static_cast<int>(of.groups / blocks.slab),
                .columns = static_cast<int>(blocks.columns),
                .rows = blocks.rows,
                .chunks = blocks.chunks,
                .epsilon = of.epsilon,
                .affine_of_group = of.affine_of_group};
  const dim3 grid(static_cast<unsigned>(of.images * cut.slabs), static_cast<unsigned>(blocks.chunks));
  auto* const moments = reinterpret_cast<Moments*>(workspace);
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    const auto run = [&]<int pack>(std::integral_constant<int, pack>) {
      const bool one_cell = cut.slab == 1 || cut.parts % pack == 0;
      const auto* from = static_cast<const T*>(x);
      launch(context, one_cell ? pixel_moments<pack, 1, T> : pixel_moments<pack, pack, T>, grid, dim3(threads), 0, from,
             moments, cut);
      launch(context, map_pixels<pack, T>, grid, dim3(threads), 0, from, static_cast<T*>(y),
             static_cast<const Moments*>(moments), scale, bias, cut, DeviceActivation(of.activation));
    };
    if (blocks.pack == 1)
      run(std::integral_constant<int, 1>());
    else
      run(std::integral_constant<int, static_cast<int>(16 / sizeof(T))>());
  });
}

}  // namespace lenslet::cuda
