#pragma once
// Tile configurations of wgmma_gemm, their cost, and the kernel's index arithmetic. Plain C++.
//
// gemm_m = N*P*Q output pixels, gemm_n = K filters, gemm_k = R*S*C. gemm_k is traversed in groups of `width` channels
// of one tap (64, 32 or 16; a tap's last group is zero-padded). A k-block (`step`) is as many groups as make 64,
// zero-padded too, or the only group of a problem. Grouped convolutions run as sets of groups (group_sets.h): a tile's
// filters are of one set and read its channels alone.
//
// Two kernels. wgmma_gemm.cuh: persistent blocks of three or four warpgroups walk [m x n] tiles, filters fastest, so
// that concurrent blocks share pixels and filters in L2. wgmma_split_k.cuh: cluster split-K for problems with few
// tiles.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_format.h"
#include "base/cuda/fast_divider.h"
#include "base/cuda/host_device.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/costs/wgmma_gemm.h"

namespace lenslet::cuda {

/// A k-block (BLOCK_K) in bytes, for any element type: a row of the widest swizzle. In 16-bit channels.
inline constexpr int wgmma_step_bytes = 128, wgmma_step = wgmma_step_bytes / 2;

/// Channels of a group: a row of 128, 64 or 32 bytes in the swizzled layout.
inline constexpr std::array<int, 3> wgmma_widths{64, 32, 16};

/// Consumer warpgroups of most persistent blocks.
inline constexpr int wgmma_consumers = 2;

/// Tile shapes of persistent blocks, in the order of `wgmma_tiles`: many sizes, so that the last wave leaves few
/// multiprocessors idle. 64 images of 14x14 by 256 filters are 98 tiles of 128x256 (3/4 wave), 132 of 192x128; 64 of
/// 7x7 by 2048 filters 400 of 128x128 (3.03 waves), 250 of 128x208.
enum class WgmmaTile {
  t128x256,
  t256x128,
  t128x208,
  t192x128,
  t128x128,
  t256x96,
  t128x96,
  t256x64,
  t192x64,
  t128x64,
  t256x32
};

struct WgmmaTileShape {
  int m = 0, n = 0;
  int consumers = wgmma_consumers;  ///< warpgroups that share its pixels
};

inline constexpr std::array<WgmmaTileShape, 11> wgmma_tiles{{
    {128, 256},
    {256, 128},
    {128, 208},
    {192, 128, 3},
    {128, 128},
    {256, 96},
    {128, 96},
    {256, 64},
    {192, 64, 3},
    {128, 64},
    {256, 32},
}};

/// Whether a consumer's thread has registers for a tile's biases, besides accumulators and epilogue. It has 232 with
/// two consumers, 160 with three.
LENSLET_HOST_DEVICE constexpr bool holds_biases(const WgmmaTileShape& tile) {
  return tile.m / 64 / tile.consumers * tile.n / 2 + tile.n / 4 <= (tile.consumers <= wgmma_consumers ? 128 : 48);
}

/// Factor of the time that a tile's rate says. Below 1 for 1x1 of 16 bits by 128x96. For filters of several taps above
/// 1 for 256x32, for half-empty tiles, for 192x64, 256x64 and 128x128 in few waves, and for sets of groups without
/// stride (few channels, read from L2 once a tap). Cases: docs/results/cuda-cost-model-cases-2026-11-27.csv.
double windows_cost(const ConvProblem& problem, std::int64_t together, const WgmmaTileShape& tile, double waves);

constexpr const WgmmaTileShape& shape_of(WgmmaTile tile) { return wgmma_tiles[static_cast<std::size_t>(tile)]; }

/// Narrow widths, for few channels, have kernels of these tiles only.
constexpr bool has_width(WgmmaTile tile, int width) {
  return width == wgmma_step || tile == WgmmaTile::t128x128 || tile == WgmmaTile::t256x96 ||
         tile == WgmmaTile::t256x64 || tile == WgmmaTile::t128x64 || tile == WgmmaTile::t256x32;
}

/// Tile shapes of cluster split-K, in the order of `split_k_tiles`.
enum class SplitKTile { t128x128, t128x64, t64x64, t64x32 };

struct SplitKTileShape {
  int m = 0, n = 0;
  int blocks = 1;  ///< resident on a multiprocessor
};

inline constexpr std::array<SplitKTileShape, 4> split_k_tiles{{
    {128, 128, 1},
    {128, 64, 1},
    {64, 64, 2},
    {64, 32, 2},
}};

constexpr const SplitKTileShape& shape_of(SplitKTile tile) { return split_k_tiles[static_cast<std::size_t>(tile)]; }

constexpr bool has_width(SplitKTile tile, int width) {
  return width == wgmma_step || tile == SplitKTile::t128x64 || tile == SplitKTile::t64x64;
}

/// Channels of packed filters, zero-padded to whole rows, so that taps begin at multiples of a row.
std::int64_t prepared_channels(const ConvProblem& problem);

/// Blocks on that many multiprocessors so that each block's tiles all have the same filters: a multiple of `beside`,
/// the tiles of the same pixels; 0 where a sixteenth of the multiprocessors or more would idle.
constexpr std::int64_t blocks_of_same_filters(std::int64_t multiprocessors, std::int64_t beside) {
  const std::int64_t even = multiprocessors / beside * beside;
  return even > multiprocessors - multiprocessors / 16 ? even : 0;
}

/// Cluster sizes: powers of 2, so that blocks reduce equal shares.
inline constexpr std::array<int, 4> split_k_counts{1, 2, 4, 8};

/// Filters of a box of the epilogue (staged_rows pixels): a consumer warp rounds it into shared memory, one TMA store
/// writes it; a residual comes the same way. TMA takes a fixed time a row, so rows are as wide as divides n: 64
/// filters, the widest swizzle, or 96 unswizzled: two of four bank groups conflict, which costs less than three boxes.
LENSLET_HOST_DEVICE constexpr int staged_filters(int n) {
  return n % 64 == 0 ? 64 : n % 96 == 0 ? 96 : n % 104 == 0 ? 104 : n % 32 == 0 ? 32 : 16;
}
inline constexpr int staged_rows = 16;
LENSLET_HOST_DEVICE constexpr int staged_box_bytes(int n) { return staged_rows * staged_filters(n) * 2; }
/// Boxes that are rounded together: those of the same pixels, up to 128 filters, if a warp's slots hold twice as many;
/// else one.
LENSLET_HOST_DEVICE constexpr int wide_boxes(int n, int slots) {
  const int boxes = n / staged_filters(n);
  return n <= 128 && slots % (2 * boxes) == 0 ? boxes : 1;
}

/// Byte offset of results (row, 8 * eight ...+7) in a box of `filters`: TMA's swizzle, 16-byte units permuted so that
/// eight rows are in different banks; unswizzled for 96 filters.
LENSLET_HOST_DEVICE constexpr int staged_offset(int row, int eight, int filters) {
  const int dense = row * filters * 2 + eight * 16;
  return filters >= 96 ? dense : dense ^ ((dense >> 7 & (filters / 8 - 1)) << 4);
}
/// The offset of (row, 8 * (eight + 2 * pairs) ...), given that of (row, 8 * eight ...), in a box aligned to its size.
LENSLET_HOST_DEVICE constexpr int staged_behind(int offset, int pairs, int filters) {
  return filters >= 96 ? offset + pairs * 32 : offset ^ (pairs * 32);
}

/// Shared memory in bytes: stages of both operands, boxes of the epilogue, barriers.
struct WgmmaShared {
  int pixels = 0, filters = 0;  ///< of a stage
  int stages = 0;
  int slots = 0;     ///< boxes of a consumer warp
  int staging = 0;   ///< offset of the warps' slots
  int barriers = 0;  ///< offset: full barriers of the stages, then empty ones, then one a slot
  int total = 0;

  bool operator==(const WgmmaShared&) const = default;
};
/// With a residual, slots are worth more than a fourth stage: 64x64x56x56 -> 256, 1x1, TF32, takes 80 us without
/// residual, 174 with parts loaded one by one; its bytes take 49.
/// `box`: bytes of a box.
constexpr WgmmaShared shared_of(const WgmmaTileShape& tile, bool residual, int box) {
  constexpr int all = 224 << 10, most_stages = 8, most_slots = 8;
  const int warps = tile.consumers * 4;
  const int least_stages = residual ? 3 : 4;
  WgmmaShared shared;
  shared.pixels = tile.m * wgmma_step_bytes;
  shared.filters = tile.n * wgmma_step_bytes;
  const int stage = shared.pixels + shared.filters;
  // More slots keep more bytes in flight where gemm_k is short; large tiles are for long gemm_k.
  const int ample = 8192 / box < most_slots ? 8192 / box : most_slots;
  shared.slots = ample == 2 || least_stages * stage + warps * ample * box <= all ? ample : ample / 2;
  const int staging = warps * shared.slots * box, for_stages = all - staging;
  shared.stages = for_stages / stage < most_stages ? for_stages / stage : most_stages;
  shared.staging = shared.stages * stage;
  shared.barriers = shared.staging + staging;
  shared.total = shared.barriers + (2 * shared.stages + warps * shared.slots) * 8;
  return shared;
}
constexpr WgmmaShared shared_of(const WgmmaTileShape& tile, bool residual) {
  return shared_of(tile, residual, staged_box_bytes(tile.n));
}

/// Whether there is a separate layout with residuals.
constexpr bool has_residual_layout(const WgmmaTileShape& tile) {
  return shared_of(tile, true) != shared_of(tile, false);
}

/// Shared memory in bytes of a split-K block: stages of both operands, partial sums of its share of the tile from all
/// splits, barriers.
struct SplitKShared {
  int pixels = 0, filters = 0;  ///< of a stage
  int stages = 0;
  int acc = 0;       ///< offset of the partial sums
  int barriers = 0;  ///< offset: full barriers of the stages, then empty ones
  int total = 0;
};
constexpr SplitKShared shared_of(const SplitKTileShape& tile) {
  // A multiprocessor has 228 KiB; each block costs 1 more, and one block can have 227.
  constexpr int all = 227 << 10, half = 113 << 10, most_stages = 8, for_barriers = 256;
  SplitKShared shared;
  shared.pixels = tile.m * wgmma_step_bytes;
  shared.filters = tile.n * wgmma_step_bytes;
  const int stage = shared.pixels + shared.filters, acc_bytes = tile.m * tile.n * 4;
  const int fitting = ((tile.blocks == 1 ? all : half) - acc_bytes - for_barriers) / stage;
  shared.stages = fitting < most_stages ? fitting : most_stages;
  shared.acc = shared.stages * stage;
  shared.barriers = shared.acc + acc_bytes;
  shared.total = shared.barriers + 2 * shared.stages * 8;
  return shared;
}

/// How a cluster shares a tile's reduction and epilogue, in fragments of 16 pixels by 16 filters, those of the same
/// pixels consecutive. A consumer warp sends its fragments of partial sums to their owners; each rank owns equally
/// many, its slots. All numbers are powers of 2.
inline constexpr int fragment_rows = 16, fragment_filters = 16, fragment_bytes = fragment_rows * fragment_filters * 4;
struct SplitKShare {
  int each_log2 = 0;  ///< fragments a rank, log2
  int warps = 0;      ///< that share a rank's fragments

  LENSLET_HOST_DEVICE constexpr int each() const { return 1 << each_log2; }
  LENSLET_HOST_DEVICE constexpr int owner(int fragment) const { return fragment >> each_log2; }
  LENSLET_HOST_DEVICE constexpr int slot(int fragment) const { return fragment & (each() - 1); }
  LENSLET_HOST_DEVICE constexpr int fragment(int rank, int slot) const { return rank << each_log2 | slot; }
  /// Slots of a warp, consecutive. With fewer slots than warps the last warps have none: first() is each().
  LENSLET_HOST_DEVICE constexpr int of_warp() const { return each() < warps ? 1 : each() / warps; }
  LENSLET_HOST_DEVICE constexpr int first(int warp) const {
    const int slot = warp * of_warp();
    return slot < each() ? slot : each();
  }
};
LENSLET_HOST_DEVICE constexpr int log2_of(int power) {
  int log2 = 0;
  while (power >> (log2 + 1) != 0) ++log2;
  return log2;
}
LENSLET_HOST_DEVICE constexpr SplitKShare share_of(int m, int n, int split_k_log2) {
  return {log2_of(m / fragment_rows * (n / fragment_filters)) - split_k_log2, m / fragment_rows};
}
/// Byte offset of the 16 bytes (row, half) of a fragment while results are transposed in shared memory, without bank
/// conflicts.
LENSLET_HOST_DEVICE constexpr int fragment_offset(int row, int half) {
  return (row * 2 + (half ^ (row >> 2 & 1))) * 16;
}

/// First k-block of a split; `split_k` gives the number of k-blocks.
LENSLET_HOST_DEVICE constexpr int first_step(int split, int steps, int split_k_log2) {
  return static_cast<int>(static_cast<std::int64_t>(split) * steps >> split_k_log2);
}

/// Parameters of TMA's im2col mode (PTX ISA, "Im2col mode"; cuTensorMapEncodeIm2col): windows begin at the lower
/// corner, `stride` apart, up to W - 1 + upper_w and H - 1 + upper_h inclusive, along W, then H, then N.
struct Im2colBox {
  int lower_w = 0, lower_h = 0, upper_w = 0, upper_h = 0;
  int stride_w = 1, stride_h = 1;
};
/// The box of the problem's P*Q windows. It ends where the last window begins, so that it fits asymmetric pads, and
/// remainders of a stride.
Im2colBox im2col_box(const ConvProblem& problem);
/// Why there is no such box, or nothing.
std::optional<std::string> refuse_im2col(const ConvProblem& problem);

/// 1x1, stride 1, no pads: x is a matrix [pixels][C].
bool is_pointwise(const ConvProblem& problem);
/// Why the problem is too large for a kernel of 32-bit indices and TMA coordinates: pixels, elements of an image or of
/// the filters, or tiles are more than 2^log2.
std::optional<std::string> refuse_tma_sizes(const ConvProblem& problem, int log2, std::int64_t tiles_m,
                                            std::int64_t tiles_n);
/// Why the problem is too large for wgmma_gemm's kernel, whose tiles have at least `tile_n` filters.
std::optional<std::string> refuse_wgmma_sizes(const ConvProblem& problem, std::int64_t tile_n);

/// Input position of an output pixel's window.
struct WindowStart {
  int w = 0, h = 0, n = 0;
};
/// Computes it. 16-bit positions where parameters are short and a block has several tiles; in wgmma_split_k they cost
/// 0.06 us a kernel (ResNet-50, fp16, batch 1: 0.1973 ms for 0.1941).
template <typename Place = int>
struct WindowWalk {
  FastDivider p, q;
  Place lower_w = 0, lower_h = 0, stride_w = 1, stride_h = 1;

  WindowWalk() = default;
  explicit WindowWalk(const ConvProblem& problem) : p(problem.p), q(problem.q) {
    const Im2colBox box = im2col_box(problem);
    lower_w = static_cast<Place>(box.lower_w);
    lower_h = static_cast<Place>(box.lower_h);
    stride_w = static_cast<Place>(box.stride_w);
    stride_h = static_cast<Place>(box.stride_h);
  }
  LENSLET_HOST_DEVICE WindowStart start(int pixel) const {
    const int column = q.split(pixel), line = p.split(pixel);
    return {column * stride_w + lower_w, line * stride_h + lower_h, pixel};
  }
};

/// Whether persistent blocks take all taps of a group of channels before the next channels: pixels shared by taps are
/// read again while in L2. In 16 bits only with a stride; not in cluster split-K (3 to 10 % slower). Cases:
/// docs/results/cuda-cost-model-cases-2026-11-27.csv.
bool goes_by_channels(const ConvProblem& problem);

/// Order of a tile's K groups: channels, then taps of a row, then rows.
struct KOrder {
  int c = 1, taps = 1;  ///< c: padded; TMA boxes must begin at multiples of 16 bytes
  int dilation_w = 1, dilation_h = 1;
  int window_w = 1;  ///< S * dilation_w

  KOrder() = default;
  explicit KOrder(const ConvProblem& problem)
      : c(static_cast<int>(aligned_channels(problem.c, problem.x_storage))),
        taps(static_cast<int>(problem.r * problem.s)),
        dilation_w(static_cast<int>(problem.dilation_w)),
        dilation_h(static_cast<int>(problem.dilation_h)),
        window_w(static_cast<int>(problem.s * problem.dilation_w)) {}
};
struct KWalk {
  int c = 0, tap = 0, tap_w = 0, tap_h = 0;  ///< of the group: first channel, tap, and its offset

  /// Itself; past the last group a position outside of x and the filters, so that TMA loads zeros.
  LENSLET_HOST_DEVICE KWalk or_zeros(const KOrder& order) const {
    if (tap < order.taps) return *this;
    return {order.c, order.taps, 0, 0};
  }
  /// The position after `group` groups.
  LENSLET_HOST_DEVICE static KWalk at(const KOrder& order, int group, int channels) {
    const int a_tap = (order.c + channels - 1) / channels, taps = order.window_w / order.dilation_w;
    const int tap = group / a_tap, line = tap / taps;
    return {(group - tap * a_tap) * channels, tap, (tap - line * taps) * order.dilation_w, line * order.dilation_h};
  }
  template <bool by_channels = false>
  LENSLET_HOST_DEVICE void next(const KOrder& order, int channels = wgmma_step) {
    if constexpr (by_channels) {
      ++tap;
      tap_w += order.dilation_w;
      if (tap_w < order.window_w) return;
      tap_w = 0;
      tap_h += order.dilation_h;
      if (tap < order.taps) return;
      tap = tap_h = 0;
      c += channels;
      return;
    }
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

/// The last channels of a tap, where they fill at most half of a 128-byte group: a k-block of one or two instructions
/// instead of four, whose windows come by a map with a smaller box. Avoids products with zeros and boxes that reach
/// past the channels, which are slow (ragged_us). Persistent blocks only, several taps, no residual (its map's
/// parameter is reused). 39.5 to 32.3 us for 64x96x35x35 -> 96, 3x3
/// (docs/results/cuda-cost-model-cases-2026-11-27.csv). Three instructions' boxes would be as wide as whole ones, and
/// 1x1 gains nothing.
struct KTail {
  static constexpr int none = std::numeric_limits<int>::max();
  int first = none;  ///< its first channel

  KTail() = default;
  /// For groups of `width` channels, four instructions. The problem may be a set of groups.
  KTail(const ConvProblem& problem, int width);
  LENSLET_HOST_DEVICE bool exists() const { return first != none; }
  /// The last instruction may cover zero-padded channels or, in a set, others that meet zero filters.
  LENSLET_HOST_DEVICE int instructions(const KOrder& k_order, int width) const {
    return k_order.c - first > width / 4 ? 2 : 1;
  }
};
/// Order of a tile's k-blocks with tails: `times` times `whole` ordinary ones, then `tails`.
struct TailOrder {
  int times = 0, whole = 0, tails = 0;

  LENSLET_HOST_DEVICE TailOrder(const KOrder& k_order, const KTail& tail, int width, bool by_channels)
      : times(by_channels ? 1 : k_order.taps),
        whole(tail.first / width * (by_channels ? k_order.taps : 1)),
        tails(by_channels ? k_order.taps : 1) {}
};

/// Channels of a tile, for grouped convolutions.
struct SetTiles {
  int tiles = 0, channels = 0;  ///< of a set; tiles 0: there is one set

  LENSLET_HOST_DEVICE int first_channel(int tile_n) const { return tiles == 0 ? 0 : tile_n / tiles * channels; }
};

struct WgmmaGemmPlan {
  std::int64_t together = 1, sets = 1;             ///< groups in a set, and sets
  WgmmaTile tile = WgmmaTile::t128x128;            ///< persistent blocks
  SplitKTile split_k_tile = SplitKTile::t128x128;  ///< cluster split-K
  int split_k = 0;                                 ///< splits of a tile, reduced in a cluster; 0: persistent blocks
  int width = wgmma_step;                          ///< channels of a group
  std::int64_t tiles_m = 0, tiles_n = 0;           ///< tiles_n: of all sets
  std::int64_t k_groups = 0;                       ///< R*S times C/width rounded up
  std::int64_t steps = 0;                          ///< k-blocks of a tile, all splits
  int k_groups_per_block = 1;                      ///< 64 / width, or 1 if there is one group

  /// Stages whose filters need to be loaded only once, if all of a block's tiles have the same filters; 0 where a tile
  /// has more k-blocks than stages.
  int lasting_stages(int stages) const {
    return steps > stages ? 0 : stages / static_cast<int>(steps) * static_cast<int>(steps);
  }

  int m() const { return split_k == 0 ? shape_of(tile).m : shape_of(split_k_tile).m; }
  int n() const { return split_k == 0 ? shape_of(tile).n : shape_of(split_k_tile).n; }
  /// The configuration: "tile=128x256" for persistent blocks, "tile=64x64 split_k=4" for cluster split-K;
  /// then " width=32" where it is not 64, and " together=4".
  std::string str() const;
};

WgmmaGemmPlan tile_wgmma(const ConvProblem& problem, WgmmaTile tile, int width = wgmma_step);
/// `split_k` is one of split_k_counts, and at most the number of k-blocks.
WgmmaGemmPlan tile_wgmma(const ConvProblem& problem, SplitKTile tile, int split_k, int width = wgmma_step);
/// All configurations with a kernel; narrow widths where they pad less. Grouped convolutions: persistent blocks of
/// whole tiles only, perhaps none.
std::vector<WgmmaGemmPlan> wgmma_tilings(const ConvProblem& problem);
/// Time in us, launch included.
double wgmma_plan_us(const ConvProblem& problem, const WgmmaGemmPlan& plan, const DeviceProfile& device,
                     const WgmmaGemmCosts& costs = wgmma_gemm_costs);
/// The fastest by wgmma_plan_us() on reference_gpu(): split-K decides the order of additions, so the bits must not
/// depend on the device. Tile and width change none.
WgmmaGemmPlan plan_wgmma_gemm(const ConvProblem& problem);
/// Reads str()'s text. Error(invalid_argument).
WgmmaGemmPlan read_wgmma_gemm_plan(const ConvProblem& problem, std::string_view config);

/// Defined in wgmma_gemm.cu. Without split-K.
std::unique_ptr<const BoundKernel> bind_wgmma_gemm(const ConvProblem& problem, const WgmmaGemmPlan& plan);

}  // namespace lenslet::cuda
