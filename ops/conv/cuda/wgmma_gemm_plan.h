#pragma once
// How wgmma_gemm cuts a convolution, and all index arithmetic of its that does not need a device. Plain C++.
//
// gemm_m = N*P*Q output pixels, gemm_n = K filters, gemm_k = R*S*C terms of one group. A block of three warpgroups
// walks through tiles of [m x n] outputs, filters fastest, so that the blocks at work share pixels and filters in L2.
// A step multiplies 64 channels of one tap; the last channels of a tap may be fewer, and zeros then.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/cuda/fast_divider.h"
#include "base/cuda/host_device.h"
#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// Channels of a step: 128 bytes, a row of the tensor cores' swizzled layout.
inline constexpr int wgmma_step = 64;

/// Tile shapes there are kernels for, in the order of `wgmma_tiles`.
enum class WgmmaTile { t128x256, t256x128, t128x128, t256x64, t128x64 };

struct WgmmaTileShape {
  int m = 0, n = 0;
  double efficiency = 0;  ///< share that steps reach of what large products reach
};

// Fitted with the rest of the model (wgmma_gemm_plan.cpp). Above 1: what a large product reaches is held by the power
// that it draws, which short ones do not; narrow tiles read more shared memory and L2 for a product.
inline constexpr std::array<WgmmaTileShape, 5> wgmma_tiles{{
    {128, 256, 1.15},
    {256, 128, 1.10},
    {128, 128, 1.05},
    {256, 64, 1.12},
    {128, 64, 0.79},
}};

constexpr const WgmmaTileShape& shape_of(WgmmaTile tile) { return wgmma_tiles[static_cast<std::size_t>(tile)]; }

/// Results leave through shared memory in parts of so many pixels and filters, which a consumer warp rounds and one
/// copy stores. A residual comes the same way.
inline constexpr int staged_rows = 16, staged_filters = 64, staged_bytes = staged_rows * staged_filters * 2;

/// Where the results (row, 8 * eight ...+7) of a part lie, in bytes: as copies by a tensor map have them, 16-byte units
/// permuted so that those of eight rows lie in different banks.
LENSLET_HOST_DEVICE constexpr int staged_offset(int row, int eight) {
  return row * staged_filters * 2 + ((eight ^ (row & 7)) << 4);
}

/// Bytes of shared memory: stages of both operands, parts on their way, and barriers.
struct WgmmaShared {
  int pixels = 0, filters = 0;  ///< of a stage's operands
  int stages = 0;
  int buffers = 0;   ///< of a consumer warp, for parts
  int staging = 0;   ///< where the warps' buffers begin
  int barriers = 0;  ///< where they begin: a full one each stage, then an empty one each, then one each buffer
  int total = 0;
};
inline constexpr int wgmma_consumers = 2;
constexpr WgmmaShared shared_of(const WgmmaTileShape& tile) {
  constexpr int all = 224 << 10, warps = wgmma_consumers * 4, least_stages = 4, most_stages = 8;
  WgmmaShared shared;
  shared.pixels = tile.m * wgmma_step * 2;
  shared.filters = tile.n * wgmma_step * 2;
  const int stage = shared.pixels + shared.filters;
  // More of them keep more bytes under way where sums are short. Large tiles are for long ones.
  shared.buffers = least_stages * stage + warps * 4 * staged_bytes <= all ? 4 : 2;
  const int staging = warps * shared.buffers * staged_bytes, for_stages = all - staging;
  shared.stages = for_stages / stage < most_stages ? for_stages / stage : most_stages;
  shared.staging = shared.stages * stage;
  shared.barriers = shared.staging + staging;
  shared.total = shared.barriers + (2 * shared.stages + warps * shared.buffers) * 8;
  return shared;
}

/// What the copy engine's im2col mode is told (PTX ISA, "Im2col mode"; cuTensorMapEncodeIm2col): windows begin at the
/// lower corner, `stride` apart, up to W - 1 + upper_w and H - 1 + upper_h inclusive, along W, then H, then N.
struct Im2colBox {
  int lower_w = 0, lower_h = 0, upper_w = 0, upper_h = 0;
  int stride_w = 1, stride_h = 1;
};
/// The box of the P*Q windows that the problem has, which ends where the last of them begins: it needs no pads on the
/// right, and holds for what is asymmetric, or left over by a stride.
Im2colBox im2col_box(const ConvProblem& problem);
/// Why there is no such box, or nothing.
std::optional<std::string> refuse_im2col(const ConvProblem& problem);

/// Images, lines and columns are read as they lie: no window is needed.
bool is_pointwise(const ConvProblem& problem);

/// Where the window of an output pixel begins.
struct WindowStart {
  int w = 0, h = 0, n = 0;
};
/// Finds it.
struct WindowWalk {
  FastDivider p, q;
  int lower_w = 0, lower_h = 0, stride_w = 1, stride_h = 1;

  WindowWalk() = default;
  explicit WindowWalk(const ConvProblem& problem);
  LENSLET_HOST_DEVICE WindowStart start(int pixel) const {
    const int column = q.split(pixel), line = p.split(pixel);
    return {column * stride_w + lower_w, line * stride_h + lower_h, pixel};
  }
};

/// The steps of a tile: channels, then taps of a line, then lines.
struct TermOrder {
  int c = 1;
  int dilation_w = 1, dilation_h = 1;
  int window_w = 1;  ///< S * dilation_w

  TermOrder() = default;
  explicit TermOrder(const ConvProblem& problem)
      : c(static_cast<int>(problem.c)),
        dilation_w(static_cast<int>(problem.dilation_w)),
        dilation_h(static_cast<int>(problem.dilation_h)),
        window_w(static_cast<int>(problem.s * problem.dilation_w)) {}
};
struct TermWalk {
  int c = 0, tap = 0, tap_w = 0, tap_h = 0;  ///< of the step: its first channel, its tap, and where that is

  LENSLET_HOST_DEVICE void next(const TermOrder& order, int channels = wgmma_step) {
    c += channels;
    if (c < order.c) return;
    c = 0;
    ++tap;
    tap_w += order.dilation_w;
    if (tap_w < order.window_w) return;
    tap_w = 0;
    tap_h += order.dilation_h;
  }
};

struct WgmmaGemmPlan {
  WgmmaTile tile = WgmmaTile::t128x128;
  std::int64_t tiles_m = 0, tiles_n = 0;
  std::int64_t steps = 0;  ///< R*S times C/64 rounded up
  /// 2: two blocks, a cluster, take tiles of the same filters, of which each brings half to both.
  int cluster = 1;

  /// The configuration, from which the rest follows: "tile=128x256", " cluster=2" where it is not 1.
  std::string str() const;
};

WgmmaGemmPlan cut_wgmma(const ConvProblem& problem, WgmmaTile tile, int cluster = 1);
/// Time in us, launch included.
double wgmma_plan_us(const ConvProblem& problem, const WgmmaGemmPlan& plan, const DeviceProfile& device);
/// The fastest by wgmma_plan_us(). All tiles add in the same order: no bit depends on the choice.
WgmmaGemmPlan plan_wgmma_gemm(const ConvProblem& problem, const DeviceProfile& device);
/// What str() wrote. Error(invalid_argument).
WgmmaGemmPlan read_wgmma_gemm_plan(const ConvProblem& problem, std::string_view config);

}  // namespace lenslet::cuda
