// thin_mma: 1x1 convolutions of at most 32 channels, NHWC, 16 bits, on tensor cores. They are bound by memory, and
// pixels are too short for tiles in shared memory: 64x24x56x56 -> 24 takes 15.8 us by wgmma_gemm, 4.6 by this, 4.5 is
// memory's (H200). A lane loads 16 bytes of a pixel straight into fragments of A, and stores 16 bytes straight from the
// accumulators, because channels and filters are permuted to match. Filters stay in registers.
//
// Lane l of a warp holds channels 8t ... 8t + 7, t = l % 4, of the pixels of rows l / 4 and l / 4 + 8: two words per
// instruction of k 16; afterwards filters 8t ... 8t + 7.

#include <algorithm>
#include <string>

#include "base/aligned_format.h"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/mma.cuh"
#include "ops/conv/cuda/one_launch.cuh"
#include "ops/conv/cuda/some_of.cuh"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

constexpr int block_threads = 128, warps = block_threads / 32;
/// K of two instructions; filters of four.
constexpr int most_channels = 32, set_filters = 32;
/// Sets of filters that fit registers, and shared memory. A set is eight fragments of B, two words a lane.
constexpr int most_held = 2, most_sets = 16, set_parts = 8 * 32;
/// Rows of 16 pixels that a warp loads before its first product.
constexpr int rows16 = 4, warp_pixels = 16 * rows16;

/// w [sets][4 of filters][2 of k][lanes] of two words: a lane's fragment of B.
struct ThinCall : UntypedConvCall {
  using UntypedConvCall::UntypedConvCall;
  int pixels, sets;
  int x_pixel, k_room;  ///< pixel pitch of x, and of the residual
};

/// A lane's fragments and bias of a set of filters.
struct ThinSet {
  uint2 b[4][2];
  float bias[8];
};

/// Computes 16 pixels from `first` on by a set of filters; the lane's begin at `filter`.
template <typename T>
__device__ inline void multiply_and_store(const ThinCall& call, const PairClamp<T>& clamp,
                                          const std::uint32_t (&row)[2][4], const ThinSet& set, int first, int filter) {
  float sums[4][4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int terms = i % 2 * 2;
    const std::uint32_t a[4] = {row[0][terms], row[1][terms], row[0][terms + 1], row[1][terms + 1]};
    const uint2 b = set.b[i / 2][i % 2];
    mma<T>(sums[i / 2], a, b.x, b.y);
  }
  float v[2][8];
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i / 8][i % 8] = sums[i % 8 / 2][i / 8 * 2 + i % 2] + set.bias[i % 8];
  const auto pixel_of = [&](int i) { return first + i * 8 + static_cast<int>(threadIdx.x) % 32 / 4; };
  const auto exists = [&](int i) { return pixel_of(i) < call.pixels && filter < call.k; };
  if (call.residual != nullptr) {
    const T* const residual = static_cast<const T*>(call.residual) + filter;
    std::uint32_t added[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) load_or_zero(added[i], residual + std::int64_t{pixel_of(i)} * call.k_room, exists(i));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 pair = widened_pair<T>(added[i / 4][i % 4]);
      v[i / 4][i % 4 * 2] += pair.x;
      v[i / 4][i % 4 * 2 + 1] += pair.y;
    }
  }
  if (!call.activation.is_clamp()) {
    // Other activations are long code: not unrolled.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
      call.activation.apply_for_halves(v[0]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float done = v[0][j];
        v[0][j] = v[1][j];
        v[1][j] = done;
      }
    }
  }
  T* const y = static_cast<T*>(call.y) + filter;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint4 words;
    words.x = clamp(narrowed_pair<T>(v[i][0], v[i][1]));
    words.y = clamp(narrowed_pair<T>(v[i][2], v[i][3]));
    words.z = clamp(narrowed_pair<T>(v[i][4], v[i][5]));
    words.w = clamp(narrowed_pair<T>(v[i][6], v[i][7]));
    if (exists(i)) *reinterpret_cast<uint4*>(y + std::int64_t{pixel_of(i)} * call.y_pixel) = words;
  }
}

/// `held`: sets of filters in registers; 0: call.sets of them in shared memory.
template <typename T, int held>
__global__ void __launch_bounds__(block_threads, held == 1 ? 4 : 3) thin_kernel(const __grid_constant__ ThinCall call) {
  const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4;
  extern __shared__ uint2 shared[];
  const uint2* const w = static_cast<const uint2*>(call.w);
  ThinSet set[held == 0 ? 1 : held];
  const auto take_operands = [&](ThinSet& to, const uint2* from) {
#pragma unroll
    for (int i = 0; i < 8; ++i) to.b[i / 2][i % 2] = held == 0 ? from[i * 32 + lane] : __ldg(from + i * 32 + lane);
  };
  if constexpr (held == 0) {
    for (int i = static_cast<int>(threadIdx.x); i < call.sets * set_parts; i += block_threads) shared[i] = __ldg(w + i);
    __syncthreads();
  } else {
#pragma unroll
    for (int i = 0; i < held; ++i) take_operands(set[i], w + i * set_parts);
  }
  // Padding channels hold anything, and 0 * NaN is NaN: a mask clears them.
  std::uint32_t kept[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int channel = 8 * t + 2 * i;
    kept[i] = channel + 1 < call.c ? 0xffffffffU : channel < call.c ? 0xffffU : 0;
  }
  wait_for_previous();
  let_next_start();

  const auto take_bias = [&](ThinSet& to, int filter) {
    const auto fours = [&](int i) {
      return call.bias != nullptr ? four_of(call.bias, filter + i, call.k) : float4{0, 0, 0, 0};
    };
    const float4 low = fours(0), high = fours(4);
    const float each[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) to.bias[i] = each[i];
  };
#pragma unroll
  for (int i = 0; i < held; ++i) take_bias(set[i], i * set_filters + 8 * t);
  const PairClamp<T> clamp(call.activation.clamp().low, call.activation.clamp().high);
  const T* const x = static_cast<const T*>(call.x) + 8 * t;
  const bool reads = 8 * t < call.c;

  std::uint32_t next[rows16][2][4];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < rows16 * 2; ++i) {
      const int pixel = first + i * 8 + lane / 4;
      load_or_zero(next[i / 2][i % 2], x + std::int64_t{pixel} * call.x_pixel, reads && pixel < call.pixels);
    }
  };
  const int step = static_cast<int>(gridDim.x) * warps * warp_pixels;
  int first = static_cast<int>(blockIdx.x * warps + threadIdx.x / 32) * warp_pixels;
  if (first < call.pixels) load(first);
  for (; first < call.pixels; first += step) {
    std::uint32_t row[rows16][2][4];
#pragma unroll
    for (int i = 0; i < rows16 * 8; ++i) row[i / 8][i / 4 % 2][i % 4] = next[i / 8][i / 4 % 2][i % 4] & kept[i % 4];
    if (first + step < call.pixels) load(first + step);
    if constexpr (held == 0) {
#pragma unroll 1
      for (int i = 0; i < call.sets; ++i) {
        const int filter = i * set_filters + 8 * t;
        take_operands(set[0], shared + i * set_parts);
        take_bias(set[0], filter);
#pragma unroll
        for (int r = 0; r < rows16; ++r) multiply_and_store<T>(call, clamp, row[r], set[0], first + r * 16, filter);
      }
    } else {
#pragma unroll
      for (int r = 0; r < rows16; ++r)
#pragma unroll
        for (int i = 0; i < held; ++i)
          multiply_and_store<T>(call, clamp, row[r], set[i], first + r * 16, i * set_filters + 8 * t);
    }
  }
}

class ThinMma final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "thin_mma"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<Float16, BFloat16>>; }

 private:
  static std::int64_t sets_of(const ConvProblem& p) { return (p.k + set_filters - 1) / set_filters; }

  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (p.groups != 1) return "several groups";
    if (p.r * p.s != 1 || p.stride_h != 1 || p.stride_w != 1 || p.padded()) return "more than a product by pixel";
    if (p.c > most_channels) return "more than 32 channels";
    if (p.k > set_filters * most_sets) return "more than 512 filters";
    if (p.n > (std::int64_t{1} << 30) / p.p / p.q) return "more than 2^30 pixels";
    return std::nullopt;
  }

  static std::int64_t blocks_of(const ConvProblem& p) {
    constexpr std::int64_t block_pixels = warps * warp_pixels;
    return (p.n * p.p * p.q + block_pixels - 1) / block_pixels;
  }
  /// Resident blocks a multiprocessor.
  static std::int64_t resident_of(const ConvProblem& p) { return sets_of(p) == 1 ? 4 : 3; }

  /// A start, plus bytes at memory's rate or the warp's sets one after the other. Within 13 % of four layers from 2.0
  /// to 55.8 us (docs/results/cuda-cost-model-cases-2026-11-27.csv). A set costs 0.7 us more than wgmma_gemm where
  /// pixels are few (1x16x112x112 -> 96).
  Plan plan(const ConvProblem& p, const Target& target) const override {
    constexpr double start_us = 0.55, held_share = 0.95, shared_share = 0.77, set_us = 0.6;
    ConvProblem stored = p;
    stored.c = aligned_channels(p.c, p.storage);
    stored.k = aligned_channels(p.k, p.storage);
    const DeviceProfile& device = target.device;
    const double share = sets_of(p) > most_held ? shared_share : held_share;
    const std::int64_t at_once = resident_of(p) * std::max(device.units, 1);
    const auto turns = static_cast<double>((blocks_of(p) + at_once - 1) / at_once * sets_of(p));
    return {.format = aligned_nhwc(p.k, p.storage),
            .x_format = aligned_nhwc(p.c, p.storage),
            .pitched = true,
            .config = ConfigWriter().add("sets", sets_of(p)).str(),
            .estimated_us =
                device.launch_us + start_us + std::max(stored.bytes() / (share * device.bytes_per_us), turns * set_us),
            .tolerance = half_sum_tolerance(p.storage, p.c)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.floats = sets_of(p) * set_filters * most_channels,
            .form = std::string(to_string(p.storage)),
            .element_bytes = 2};
  }
  void transform_bytes(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                       std::span<std::byte> to) const override {
    dispatch(p.storage, Types<Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      T* element = reinterpret_cast<T*>(to.data());
      for (std::int64_t set = 0; set < sets_of(p); ++set)
        for (std::int64_t four = 0; four < 4; ++four)
          for (std::int64_t terms = 0; terms < 2; ++terms)
            for (std::int64_t lane = 0; lane < 32; ++lane)
              for (std::int64_t i = 0; i < 4; ++i, ++element) {
                const std::int64_t column = lane / 4;  // column of operand B
                const std::int64_t k = set * set_filters + column / 2 * 8 + four * 2 + column % 2;
                const std::int64_t c = lane % 4 * 8 + terms * 4 + i;
                *element = narrowed<T>(k < p.k && c < p.c ? filter.exact_weight(k, c) : 0.0);
              }
    });
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    ConfigReader reader(config);
    const std::int64_t sets = reader.integer("sets", 1, most_sets);
    reader.finish();
    if (sets != sets_of(p)) reader.refuse("there are not so many filters");
    ThinCall call(p);
    call.pixels = static_cast<int>(p.n * p.p * p.q);
    call.sets = static_cast<int>(sets);
    call.x_pixel = static_cast<int>(aligned_channels(p.c, p.storage));
    call.k_room = static_cast<int>(aligned_channels(p.k, p.storage));
    // As many as are resident at once, so that a warp's filters serve many pixels.
    const std::int64_t at_once = resident_of(p) * std::max(device.units, 1);
    const auto kernel = [&]<typename T>(std::type_identity<T>) {
      return sets == 1 ? thin_kernel<T, 1> : sets == most_held ? thin_kernel<T, most_held> : thin_kernel<T, 0>;
    };
    return std::make_unique<OneUntypedLaunch<ThinCall>>(
        call, p.storage == DType::f16 ? kernel(std::type_identity<Float16>()) : kernel(std::type_identity<BFloat16>()),
        static_cast<unsigned>(std::min(blocks_of(p), at_once)), block_threads,
        sets > most_held ? static_cast<std::size_t>(sets) * set_parts * sizeof(uint2) : 0);
  }
};

}  // namespace

const Kernel& conv_thin_mma() {
  static const ThinMma algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
