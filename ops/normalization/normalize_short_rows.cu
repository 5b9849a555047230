// Short rows brought to mean 0 and variance 1, with a scale and a bias for each element, and perhaps a residual: a
// group of lanes of one warp holds a row in registers, 16 bytes a load. In float32, where double takes half of the time
// and more: distances are taken from the rounded mean, whose own error is then subtracted.
#include <algorithm>
#include <cmath>

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"
#include "base/dtypes.h"
#include "ops/normalization/normalize_short_rows.h"
#include "ops/reduce/rows.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
constexpr int most_elems = 32;  ///< a lane

template <typename T>
constexpr int pack = sizeof(StagedPack<T>) / sizeof(T);
/// Blocks a multiprocessor, at least.
template <typename T, bool adds>
constexpr int resident_blocks = !adds        ? 4
                                : is_half<T> ? 3
                                             : 2;

__device__ void widen(const float4& from, float (&to)[4]) {
  to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}
template <typename T>
__device__ void widen(const EightHalves<T>& from, float (&to)[8]) {
#pragma unroll
  for (int k = 0; k < 8; ++k) to[k] = widened(from.at(k));
}

template <typename Sum>
__device__ Sum sum_of_group(Sum value, int group) {
  for (int mask = 1; mask < group; mask *= 2) value += shuffle_xor(value, mask);
  return value;
}

/// y = (x - center) * gain + rest.
struct Line {
  float center, gain, rest;
};

/// The line of a row with these sums over the group's lanes: of distances from `center`, and of their squares.
template <typename Sum, bool centered>
__device__ Line line_of(float center, Sum rest, Sum squares, float length, float epsilon) {
  const Sum shift = centered ? rest / static_cast<Sum>(length) : Sum{0};
  Sum variance = squares / static_cast<Sum>(length) - shift * shift;
  if (variance < 0) variance = 0;  // NaN stays
  const Sum gain = Sum{1} / sqrt(variance + static_cast<Sum>(epsilon));
  return {center, static_cast<float>(gain), static_cast<float>(-shift * gain)};
}

/// In double, for squares out of float's range. Not inlined: its registers would be every row's.
template <typename T, bool centered>
__device__ __noinline__ Line line_in_double(const StagedPack<T>* from, int inside, int group, float length,
                                            float epsilon) {
  const auto each = [&](const auto& take) {
    for (int i = 0; i < inside; ++i) {
      float values[pack<T>];
      widen(from[i * group], values);
      for (const float value : values) take(value);
    }
  };
  double sum = 0, rest = 0, squares = 0;
  if constexpr (centered) each([&](float x) { sum += static_cast<double>(x); });
  const auto center = static_cast<float>(sum_of_group(sum, group) / static_cast<double>(length));
  each([&](float x) {
    const auto distance = static_cast<double>(x - center);
    rest += distance;
    squares += distance * distance;
  });
  return line_of<double, centered>(center, sum_of_group(rest, group), sum_of_group(squares, group), length, epsilon);
}

/// `group` lanes a row of `packs` packs, a power of two. y may be x: a lane writes only what it alone has read.
template <typename T, int held, bool centered, bool adds>
__global__ void __launch_bounds__(threads, (resident_blocks<T, adds>))
    normalize_held_short(const T* x, T* y, const float* scale, const float* bias, float epsilon, std::int64_t rows,
                         int packs, int group, const T* residual) {
  wait_for_previous();
  let_next_start();
  using Pack = StagedPack<T>;
  constexpr int elems = pack<T>;
  const int member = static_cast<int>(threadIdx.x) & (group - 1);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (threads / group) + threadIdx.x / group;
  const int inside = row < rows && member < packs ? (packs - member + group - 1) / group : 0;
  const Pack* const from = reinterpret_cast<const Pack*>(x) + row * packs;
  Pack stored[held] = {};
#pragma unroll
  for (int i = 0; i < held; ++i)
    if (i < inside) stored[i] = from[member + i * group];
  [[maybe_unused]] Pack added[held] = {};
  if constexpr (adds) {
#pragma unroll
    for (int i = 0; i < held; ++i)
      if (i < inside) added[i] = (reinterpret_cast<const Pack*>(residual) + row * packs)[member + i * group];
  }
  float values[held][elems];
#pragma unroll
  for (int i = 0; i < held; ++i) widen(stored[i], values[i]);
  const auto length = static_cast<float>(packs * elems);
  float sum = 0, rest = 0, squares = 0;
  if constexpr (centered) {
#pragma unroll
    for (int i = 0; i < held; ++i)
#pragma unroll
      for (int k = 0; k < elems; ++k) sum += values[i][k];  // 0 outside
    sum = sum_of_group(sum, group);
  }
  const float center = sum / length;
#pragma unroll
  for (int i = 0; i < held; ++i)
#pragma unroll
    for (int k = 0; k < elems; ++k) {
      const float distance = i < inside ? values[i][k] - center : 0.0F;
      rest += distance;
      squares += distance * distance;
    }
  squares = sum_of_group(squares, group);
  if constexpr (centered) rest = sum_of_group(rest, group);
  Line line = line_of<float, centered>(center, rest, squares, length, epsilon);
  // Squares out of float's range, which bfloat16 reaches; for all rows of the warp, whose lanes exchange.
  const float mean = squares / length;
  const bool out_of_range = !(mean < 1e34F) || (mean < 1e-24F && epsilon < 1e-24F);
  if (__any_sync(0xffffffffU, out_of_range))
    line = line_in_double<T, centered>(from + member, inside, group, length, epsilon);
  auto* const to = reinterpret_cast<Pack*>(y) + row * packs;
#pragma unroll
  for (int i = 0; i < held; ++i) {
    if (i >= inside) continue;
    const int at = (member + i * group) * (elems / 4);
    const auto* const scales = reinterpret_cast<const float4*>(scale) + at;
    const auto* const biases = reinterpret_cast<const float4*>(bias) + at;
    const auto four = [&](const float* v, int half) {
      const float4 s = scales[half], b = bias == nullptr ? float4{} : biases[half];
      const auto one = [&](float a, float by, float plus) {
        return fmaf(fmaf(a - line.center, line.gain, line.rest), by, plus);
      };
      return float4{one(v[0], s.x, b.x), one(v[1], s.y, b.y), one(v[2], s.z, b.z), one(v[3], s.w, b.w)};
    };
    const auto result = [&] {
      if constexpr (is_half<T>)
        return Eight{four(values[i], 0), four(values[i] + 4, 1)};
      else
        return four(values[i], 0);
    }();
    if constexpr (adds)
      to[member + i * group] = as_stored<Pack>(result + loaded(added[i]));
    else
      to[member + i * group] = as_stored<Pack>(result);
  }
}

template <typename T>
bool start(const Context& context, bool centered, const T* x, T* y, const float* scale, const float* bias,
           const T* residual, float epsilon, std::int64_t rows, std::int64_t length) {
  constexpr int most_held = most_elems / pack<T>;
  const std::int64_t packs = length / pack<T>;
  if (length % pack<T> != 0 || length == 0 || packs > std::int64_t{most_held} * warp_threads) return false;
  // With few rows more lanes each: one row's time is then the total.
  constexpr std::int64_t threads_wanted = 1 << 15;
  int group = 1;
  while (group < warp_threads && group < packs && (group * most_held < packs || rows * group < threads_wanted))
    group *= 2;
  const auto run = [&](auto kernel) {
    launch(context, kernel, dim3(blocks_for(rows, threads / group)), dim3(threads), 0, x, y, scale, bias, epsilon, rows,
           static_cast<int>(packs), group, residual);
  };
  const auto of_held = [&]<int held>(std::integral_constant<int, held>) {
    if (residual != nullptr)
      centered ? run(normalize_held_short<T, held, true, true>) : run(normalize_held_short<T, held, false, true>);
    else
      centered ? run(normalize_held_short<T, held, true, false>) : run(normalize_held_short<T, held, false, false>);
  };
  const std::int64_t held = (packs + group - 1) / group;
  if (held <= 1)
    of_held(std::integral_constant<int, 1>());
  else if (held <= most_held * 3 / 4)
    of_held(std::integral_constant<int, most_held * 3 / 4>());
  else
    of_held(std::integral_constant<int, most_held>());
  return true;
}

}  // namespace

bool normalize_short_rows(const Context& context, DType dtype, bool centered, const void* x, void* y,
                          const float* scale, const float* bias, const void* residual, float epsilon, std::int64_t rows,
                          std::int64_t length) {
  if (!quad_aligned(x, y, scale, bias, residual)) return false;
  bool started = false;
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    started = start(context, centered, static_cast<const T*>(x), static_cast<T*>(y), scale, bias,
                    static_cast<const T*>(residual), epsilon, rows, length);
  });
  return started;
}

}  // namespace lenslet::cuda
