// One launch behind that of the norms: each block sums its image's norms again, which takes less than a launch of its
// own for the factors.
#include <algorithm>
#include <cmath>

#include "base/cuda/launch.h"
#include "base/dtypes.h"
#include "ops/normalization/global_response_norm_cuda.h"
#include "ops/reduce/rows.cuh"

namespace lenslet::cuda {

namespace {

constexpr int threads = 256, warps = threads / warp_threads;
constexpr int unroll = 4;  ///< loads in flight of a thread

/// A column is a pack of channels at all pixels or, with `planes`, a channel, whose pixels come in packs. A block has
/// `across` columns, and of these `chunk` positions. Grid: chunks, groups of columns, images.
struct Cut {
  std::int64_t positions, chunk, chunks, groups;
  std::int64_t x_position, y_position, x_image, y_image, column;  ///< elements from one to the next
  int channels, columns, across;
  float epsilon;
};

template <int pack, bool planes, typename T>
__global__ void __launch_bounds__(threads)
    scale_by_response(const T* x, T* y, const float* norms, const float* scale, const float* bias, Cut cut) {
  wait_for_previous();
  let_next_start();
  using Pack = Floats<pack, T>;
  __shared__ double sums[warps];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t block = blockIdx.x / cut.chunks, image = block / cut.groups;
  norms += image * cut.channels;
  double sum = 0;
  for (int c = thread; c < cut.channels; c += threads) sum += static_cast<double>(norms[c]);
  sum = join_row(sum, threads, sums, [](double a, double b) { return a + b; });
  const auto divisor = static_cast<float>(sum / cut.channels + static_cast<double>(cut.epsilon));

  const int rows = threads / cut.across;  // adjacent threads have adjacent elements
  const int row = planes ? thread % rows : thread / cut.across;
  const int column = static_cast<int>(block % cut.groups) * cut.across + (planes ? thread / rows : thread % cut.across);
  if (row >= rows || column >= cut.columns) return;
  constexpr int kinds = planes ? 1 : pack;  // channels of a column
  float factors[kinds], offsets[kinds];
#pragma unroll
  for (int k = 0; k < kinds; ++k) {
    const int c = column * kinds + k;
    factors[k] = fmaf(scale[c], norms[c] / divisor, 1.0F);
    offsets[k] = bias[c];
  }
  const T* const from = x + image * cut.x_image + column * cut.column;
  T* const to = y + image * cut.y_image + column * cut.column;
  const std::int64_t first = blockIdx.x % cut.chunks * cut.chunk;
  const std::int64_t end = first + cut.chunk < cut.positions ? first + cut.chunk : cut.positions;
  take_turns<unroll>(
      first + row, end, rows, Pack{},
      [&](std::int64_t p) { return *reinterpret_cast<const Pack*>(from + p * cut.x_position); },
      [&](const Pack& stored, std::int64_t p) {
        if (p >= end) return;
        Pack result;
#pragma unroll
        for (int k = 0; k < pack; ++k)
          result.at[k] = as_stored<T>(fmaf(loaded(stored.at[k]), factors[planes ? 0 : k], offsets[planes ? 0 : k]));
        *reinterpret_cast<Pack*>(to + p * cut.y_position) = result;
      });
}

/// `pack`: elements of an access.
Cut cut_for(const ResponseImages& of, float epsilon, std::int64_t pack) {
  constexpr std::int64_t blocks_wanted = 1056;  // eight for each of an H200's multiprocessors
  const bool planes = !of.channels_last;
  Cut cut{};
  cut.epsilon = epsilon;
  cut.channels = static_cast<int>(of.channels);
  cut.columns = static_cast<int>(planes ? of.channels : of.channels / pack);
  cut.positions = planes ? of.pixels / pack : of.pixels;
  cut.x_position = planes ? pack : of.x_pixel;
  cut.y_position = planes ? pack : of.y_pixel;
  cut.x_image = of.pixels * (planes ? of.channels : of.x_pixel);
  cut.y_image = of.pixels * (planes ? of.channels : of.y_pixel);
  cut.column = planes ? of.pixels : pack;
  const int most = planes ? warps : threads;
  cut.groups = (cut.columns + most - 1) / most;
  cut.across = planes ? warps : static_cast<int>((cut.columns + cut.groups - 1) / cut.groups);
  const std::int64_t turn = unroll * (threads / cut.across);
  cut.chunks = std::clamp<std::int64_t>(blocks_wanted / (of.images * cut.groups), 1, (cut.positions + turn - 1) / turn);
  cut.chunk = (cut.positions + cut.chunks - 1) / cut.chunks;
  return cut;
}

}  // namespace

void apply_response(const Context& context, const ResponseImages& of, float epsilon, DType dtype, const float* norms,
                    const float* scale, const float* bias, const void* x, void* y) {
  if (of.empty()) return;
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    constexpr int most = 16 / sizeof(T);
    const auto run = [&]<int pack>(std::integral_constant<int, pack>) {
      const Cut cut = cut_for(of, epsilon, pack);
      launch(context, of.channels_last ? scale_by_response<pack, false, T> : scale_by_response<pack, true, T>,
             dim3(static_cast<unsigned>(of.images * cut.groups * cut.chunks)), dim3(threads), 0,
             static_cast<const T*>(x), static_cast<T*>(y), norms, scale, bias, cut);
    };
    const bool packs = of.channels_last ? of.channels % most == 0 && of.x_pixel % most == 0 && of.y_pixel % most == 0
                                        : of.pixels % most == 0;
    if (packs && quad_aligned(x, y))
      run(std::integral_constant<int, most>());
    else
      run(std::integral_constant<int, 1>());
  });
}

}  // namespace lenslet::cuda
