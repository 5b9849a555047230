// thin_mma: 1x1 convolutions of at most 32 channels, NHWC, 16 bits, on tensor cores. They are bound by memory, and
// pixels are too short for tiles in shared memory: 64x24x56x56 -> 24 takes 15.8 us by wgmma_gemm, 4.6 by this, 4.5 is
// memory's (H200). A lane loads 16 bytes of a pixel straight into fragments of A, and stores 16 bytes straight from the
// accumulators, because channels and filters are permuted to match. Filters stay in registers.
//
// Lane l of a warp holds channels 8t ... 8t + 7, t = l % 4, of the pixels of rows l / 4 and l / 4 + 8: two words per
// instruction of k 16; afterwards filters 8t ... 8t + 7.

#include "ops/conv/cuda/thin_mma.h"

#include "base/aligned_format.h"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/mma.cuh"
#include "ops/conv/cuda/one_launch.cuh"
#include "ops/conv/cuda/some_of.cuh"

namespace lenslet::cuda {
namespace {

using namespace thin_mma_sizes;

/// w [sets][4 of filters][2 of k][lanes] of two words: a lane's fragment of B.
struct ThinCall : UntypedConvCall {
  using UntypedConvCall::UntypedConvCall;
  int pixels, sets;
  int x_pixel, k_pitch;  ///< pixel pitch of x, and of the residual
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
  float acc[4][4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int k_pair = i % 2 * 2;
    const std::uint32_t a[4] = {row[0][k_pair], row[1][k_pair], row[0][k_pair + 1], row[1][k_pair + 1]};
    const uint2 b = set.b[i / 2][i % 2];
    mma<T>(acc[i / 2], a, b.x, b.y);
  }
  float v[2][8];
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i / 8][i % 8] = acc[i % 8 / 2][i / 8 * 2 + i % 2] + set.bias[i % 8];
  const auto pixel_of = [&](int i) { return first + i * 8 + static_cast<int>(threadIdx.x) % 32 / 4; };
  const auto exists = [&](int i) { return pixel_of(i) < call.pixels && filter < call.k; };
  if (call.residual != nullptr) {
    const T* const residual = static_cast<const T*>(call.residual) + filter;
    std::uint32_t added[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) load_or_zero(added[i], residual + std::int64_t{pixel_of(i)} * call.k_pitch, exists(i));
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

}  // namespace

std::unique_ptr<const BoundKernel> bind_thin_mma(const ConvProblem& p, std::int64_t sets, std::int64_t blocks) {
  ThinCall call(p);
  call.pixels = static_cast<int>(p.n * p.p * p.q);
  call.sets = static_cast<int>(sets);
  call.x_pixel = static_cast<int>(aligned_channels(p.c, p.storage));
  call.k_pitch = static_cast<int>(aligned_channels(p.k, p.storage));
  const auto kernel = [&]<typename T>(std::type_identity<T>) {
    return sets == 1 ? thin_kernel<T, 1> : sets == most_held ? thin_kernel<T, most_held> : thin_kernel<T, 0>;
  };
  return std::make_unique<OneLaunch<ThinCall>>(
      p, call, p.storage == DType::f16 ? kernel(std::type_identity<Float16>()) : kernel(std::type_identity<BFloat16>()),
      static_cast<unsigned>(blocks), block_threads,
      sets > most_held ? static_cast<std::size_t>(sets) * set_parts * sizeof(uint2) : 0);
}

}  // namespace lenslet::cuda
