// few_filters: 1x1 convolutions in NHWC with up to eight filters, such as the last layer of segmentation networks
// (64x256x256 -> 2). Bound by reading x; GEMM tiles of 32 filters and more would compute mostly padding (22.6 us there,
// memory 5.8).
//
// Neighbouring threads read neighbouring vectors of a pixel's channels: all 32 lanes share a pixel from 68 channels on,
// 1 to 16 below. Each lane multiplies what it read by every filter; a butterfly of shuffles then reduces in a fixed
// order and leaves each lane some results (reducing everything to all lanes: two filters 7.4 us for 4.6, eight 26.7 for
// 7.9). A warp has several pixels' loads in flight.

#include <algorithm>
#include <bit>

#include "ops/conv/cuda/device_problem.h"
#include "ops/conv/cuda/one_launch.cuh"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

constexpr int warps = 4, block_threads = 32 * warps;
constexpr int ahead = 4;  ///< iterations of a warp whose loads are in flight together
constexpr std::int64_t most_filters = 8;

/// w is [filters][C]; missing filters are zero.
struct FewFiltersCall : ConvCall<> {
  int pixels;   ///< N * P * Q
  int vectors;  ///< of four channels, in a pixel
  int lanes;    ///< threads of a pixel: a power of two up to 32
};

/// Outputs of a pixel that the kernel computes: a power of two with an instance.
int filters_of(const ConvProblem& p) { return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(p.k))); }

/// Pairs of lanes exchange halves of their `had` partial sums; each goes on with one half. Below one sum both keep it.
/// A template, so that register indices are constants.
template <int distance, int had, int all>
__device__ void exchange(float (&sums)[all], int lane, int lanes, int& kept) {
  if constexpr (distance < 32) {
    if (distance >= lanes) return;
    if constexpr (had == 1) {
      sums[0] += __shfl_xor_sync(0xFFFFFFFFU, sums[0], distance);
      exchange<2 * distance, 1>(sums, lane, lanes, kept);
    } else {
      constexpr int keeps = had / 2;
      const bool upper = (lane & distance) != 0;
      if (upper) kept += keeps;
#pragma unroll
      for (int i = 0; i < keeps; ++i) {
        const float own = upper ? sums[i + keeps] : sums[i], other = upper ? sums[i] : sums[i + keeps];
        sums[i] = own + __shfl_xor_sync(0xFFFFFFFFU, other, distance);
      }
      exchange<2 * distance, keeps>(sums, lane, lanes, kept);
    }
  }
}

template <int filters>
__global__ void __launch_bounds__(block_threads) few_filters(const __grid_constant__ FewFiltersCall call) {
  const int lane = static_cast<int>(threadIdx.x) % call.lanes;
  // Pixels of one iteration are adjacent, and so are a warp's iterations.
  const int of_warp = 32 / call.lanes;
  const int warp = static_cast<int>((blockIdx.x * block_threads + threadIdx.x) / 32);
  const int first = warp * ahead * of_warp + static_cast<int>(threadIdx.x) % 32 / call.lanes;
  wait_for_previous();
  let_next_start();
  // Iteration t, filter k at t * filters + k.
  constexpr int all = ahead * filters;
  float sums[all] = {};
  for (int vector = lane; vector < call.vectors; vector += call.lanes) {
    float4 x[ahead];
#pragma unroll
    for (int turn = 0; turn < ahead; ++turn) {
      // Past the end the last pixel is computed again, and dropped.
      const int pixel = min(first + turn * of_warp, call.pixels - 1);
      x[turn] = reinterpret_cast<const float4*>(call.x)[static_cast<std::int64_t>(pixel) * call.vectors + vector];
    }
#pragma unroll
    for (int k = 0; k < filters; ++k) {
      const float4 w = __ldg(reinterpret_cast<const float4*>(call.w) + k * call.vectors + vector);
#pragma unroll
      for (int turn = 0; turn < ahead; ++turn) {
        float& sum = sums[turn * filters + k];
        sum = fmaf(x[turn].x, w.x, sum);
        sum = fmaf(x[turn].y, w.y, sum);
        sum = fmaf(x[turn].z, w.z, sum);
        sum = fmaf(x[turn].w, w.w, sum);
      }
    }
  }
  int kept = 0;  // index of the first sum that this lane keeps
  exchange<1, all>(sums, lane, call.lanes, kept);
  // Lanes beyond the number of sums hold duplicates.
  const int has = max(all / call.lanes, 1);
  if (lane >= all) return;
#pragma unroll
  for (int i = 0; i < all; ++i) {
    if (i >= has) break;
    const int k = (kept + i) % filters, pixel = first + (kept + i) / filters * of_warp;
    if (k >= call.k || pixel >= call.pixels) continue;
    const std::int64_t at = static_cast<std::int64_t>(pixel) * call.y_pixel + k;
    float sum = sums[i] + (call.bias == nullptr ? 0 : call.bias[k]);
    if (call.residual != nullptr) sum += call.residual[at];
    call.y[at] = call.activation(sum);
  }
}

class FewFilters final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "few_filters"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (p.groups != 1) return "grouped filters";
    if (p.r * p.s != 1 || p.stride_h != 1 || p.stride_w != 1 || p.padded()) return "more than a product by pixel";
    if (p.k > most_filters) return "more than 8 filters";
    if (p.c % 4 != 0) return "channels that are no multiple of 4";
    if (!fits_32_bits(p) || p.n * p.p * p.q > 0x7fffff00) return "a tensor beyond 32-bit offsets";
    return std::nullopt;
  }

  static int lanes_of(const ConvProblem& p) {
    return static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.c / 4)), 32));
  }
  static std::int64_t blocks_of(const ConvProblem& p) {
    const std::int64_t block_pixels = warps * ahead * (32 / lanes_of(p));
    return (p.n * p.p * p.q + block_pixels - 1) / block_pixels;
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    // Latency of the first bytes, and of each further iteration of a thread; shares of peak rates (memory_share:
    // cached_share where x is in L2). First guesses, for an H100.
    constexpr double start_us = 1.0, turn_us = 0.25, memory_share = 0.9, cached_share = 1.9, issue_share = 0.5;
    const DeviceProfile& device = target.device;
    const int lanes = lanes_of(p), filters = filters_of(p);
    const double turns = std::ceil(static_cast<double>(p.c) / 4 / lanes);
    // Instructions of a thread for `ahead` pixels: products, exchanges, epilogue, overhead.
    const double all = ahead * filters;
    const double instructions =
        turns * (ahead * (3 + 4.0 * filters) + filters) + 3 * all + 25 * std::ceil(all / lanes) + 60;
    const double issue =
        static_cast<double>(blocks_of(p) * block_threads) * instructions / (issue_share * device.fp32_flops_per_us / 2);
    const double share = p.bytes() < static_cast<double>(device.l2_bytes) / 2 ? cached_share : memory_share;
    return {.pitched = true,
            .estimated_us = device.launch_us + start_us + (turns - 1) * turn_us +
                            std::max(issue, p.bytes() / (share * device.bytes_per_us)),
            .tolerance = sum_tolerance(p.c)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.floats = filters_of(p) * p.c};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter, std::span<float> to) const override {
    std::fill(to.begin(), to.end(), 0.0F);
    for (std::int64_t k = 0; k < p.k; ++k)
      for (std::int64_t c = 0; c < p.c; ++c) to[static_cast<std::size_t>(k * p.c + c)] = filter.weight(k, c);
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    ConfigReader(config).finish();
    FewFiltersCall call{ConvCall<>(p), static_cast<int>(p.n * p.p * p.q), static_cast<int>(p.c / 4), lanes_of(p)};
    const auto kernel = [&] {
      switch (filters_of(p)) {
        case 1:
          return few_filters<1>;
        case 2:
          return few_filters<2>;
        case 4:
          return few_filters<4>;
        default:
          return few_filters<8>;
      }
    }();
    return std::make_unique<OneLaunch<FewFiltersCall>>(p, call, kernel, static_cast<unsigned>(blocks_of(p)),
                                                       block_threads);
  }
};

}  // namespace

const Kernel& conv_few_filters() {
  static const FewFilters algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
