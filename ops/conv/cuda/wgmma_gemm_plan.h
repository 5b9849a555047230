#pragma once
// How wgmma_gemm cuts a convolution, and all index arithmetic of its that does not need a device. Plain C++.
//
// gemm_m = N*P*Q output pixels, gemm_n = K filters, gemm_k = R*S*C terms. Terms come in groups of `width` channels of
// one tap, 64, 32 or 16; the last channels of a tap may be fewer, and zeros then. A step multiplies as many groups as
// have 64 terms, the last of which may be zeros, too; or the only one of a problem. A convolution that has groups
// itself is computed by sets of them (group_sets.h): a tile's filters are of one set, whose channels alone it reads.
//
// There are two kernels. In wgmma_gemm.cuh a block of three or four warpgroups walks through tiles of [m x n] outputs,
// filters fastest, so that the blocks at work share pixels and filters in L2. In wgmma_slices.cuh the blocks of a
// cluster multiply a slice of one tile's steps each and add up: for problems of few tiles.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_format.h"
#include "base/cuda/fast_divider.h"
#include "base/cuda/host_device.h"
#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// Terms of a step.
inline constexpr int wgmma_step = 64;

/// Channels of a group: a row of 128, 64 or 32 bytes in the tensor cores' swizzled layout.
inline constexpr std::array<int, 3> wgmma_widths{64, 32, 16};

/// Warpgroups of most persistent blocks that multiply.
inline constexpr int wgmma_consumers = 2;

/// Tile shapes of persistent blocks, in the order of `wgmma_tiles`: fine enough that the last round of tiles leaves few
/// multiprocessors without one. 14x14 pixels of 64 images and 256 filters are 98 tiles of 128x256, three quarters of a
/// round, and 132 of 192x128; 7x7 and 2048 filters 400 of 128x128, 3.03 rounds, and 250 of 128x208.
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
  double efficiency = 0;            ///< share that steps reach of what large products reach
  int consumers = wgmma_consumers;  ///< warpgroups that share its pixels
};

// Fitted with the rest of the model (wgmma_gemm_plan.cpp). Above 1: what a large product reaches is held by the power
// that it draws, which short ones do not; narrow tiles read more shared memory and L2 for a product.
inline constexpr std::array<WgmmaTileShape, 11> wgmma_tiles{{
    {128, 256, 1.37},
    {256, 128, 1.37},
    {128, 208, 1.34},
    {192, 128, 1.37, 3},
    {128, 128, 1.25},
    {256, 96, 1.12},
    {128, 96, 1.00},
    {256, 64, 1.05},
    {192, 64, 0.90, 3},
    {128, 64, 0.79},
    {256, 32, 0.60},
}};

/// Has a consumer's thread registers for a tile's biases, beside its sums and what leaves? It has 232 of two consumers,
/// 160 of three.
LENSLET_HOST_DEVICE constexpr bool holds_biases(const WgmmaTileShape& tile) {
  return tile.m / 64 / tile.consumers * tile.n / 2 + tile.n / 4 <= (tile.consumers <= wgmma_consumers ? 128 : 48);
}

/// What a tile takes of windows of several taps beside what it takes of 1x1. One of 192x64 or 256x64 waits where every
/// block has one tile: 256x64 took 1.24 of what was estimated without it, 1.32 in TF32 (11 cuts of an H100; 1.0 to 1.1
/// in several rounds), 192x64 0.98 to 1.33. At 8x64x56x56 -> 64 they came before wgmma_patch by that, 8.5 and 7.3 us
/// for 6.8, in TF32 12.3 for 11.0: ResNet-18 took 0.171 ms in 16 bits for 0.167, and 0.280 in TF32 for 0.273. 256x32
/// waits for its windows in any number of rounds: DenseNet's 64x128x56x56 -> 32, 3x3, took 71.1 us for 48.0 and
/// 64x128x28x28 -> 32 23.1 for 16.0, where wgmma_patch takes as long in TF32. Tiles that are half empty of filters
/// wait, too: 64x128x14x14 -> 32 took 7.9 us by 128x64 for 6.5, and 5.9 by wgmma_patch. 192x64 in two rounds took 1.12
/// and, in TF32, 1.17 (1x64x224x224 -> 64), 128x128 in one 1.03 to 1.09 (1x64x112x112 -> 128, 128x112x112,
/// 128x128x128), so that wgmma_patch was not taken, which was faster by 6 to 30 %.
/// Sets of groups, `together` in each, have few channels, each of which L2 brings once a tap: without a stride they
/// wait for that, whatever the tile (us, H100, estimated without it and taken: 64x512x14x14 -> 512, 3x3 in 32
/// groups, 17.8 and 21.0, 64x1024x7x7 11.7 and 14.4, 64x256x28x28 in 4 groups 34.5 and 40.1; 64x384x13x13 in 2 24.8
/// and 25.8, but 47.8 and 62.1 in TF32; by 2, 64x512x28x28 in 32 28.6 and 27.1).
double windows_cost(const ConvProblem& problem, std::int64_t together, const WgmmaTileShape& tile, double rounds);

constexpr const WgmmaTileShape& shape_of(WgmmaTile tile) { return wgmma_tiles[static_cast<std::size_t>(tile)]; }

/// Kernels of narrow groups, which are for few channels, exist of these.
constexpr bool has_width(WgmmaTile tile, int width) {
  return width == wgmma_step || tile == WgmmaTile::t128x128 || tile == WgmmaTile::t256x96 ||
         tile == WgmmaTile::t256x64 || tile == WgmmaTile::t128x64 || tile == WgmmaTile::t256x32;
}

/// Tile shapes of clusters, in the order of `slices_tiles`.
enum class SlicesTile { t128x128, t128x64, t64x64, t64x32 };

struct SlicesTileShape {
  int m = 0, n = 0;
  double efficiency = 0;  ///< as above, of full multiprocessors
  int blocks = 1;         ///< that a multiprocessor holds
};

inline constexpr std::array<SlicesTileShape, 4> slices_tiles{{
    {128, 128, 1.00, 1},
    {128, 64, 0.80, 1},
    {64, 64, 0.52, 2},
    {64, 32, 0.34, 2},
}};

constexpr const SlicesTileShape& shape_of(SlicesTile tile) { return slices_tiles[static_cast<std::size_t>(tile)]; }

constexpr bool has_width(SlicesTile tile, int width) {
  return width == wgmma_step || tile == SlicesTile::t128x64 || tile == SlicesTile::t64x64;
}

/// Channels of prepared filters, zeros behind those of x: whole rows, so that they begin at multiples of their length.
std::int64_t prepared_channels(const ConvProblem& problem);

/// Blocks of so many multiprocessors whose tiles are all of the same filters, where so many tiles are of the same
/// pixels: a multiple of these; 0 where a sixteenth of the multiprocessors, or more, had none.
constexpr std::int64_t blocks_of_same_filters(std::int64_t units, std::int64_t beside) {
  const std::int64_t even = units / beside * beside;
  return even > units - units / 16 ? even : 0;
}

/// Blocks of a cluster: powers of 2, so that their shares of a tile are even.
inline constexpr std::array<int, 4> slice_counts{1, 2, 4, 8};

/// Results leave through shared memory in boxes of so many pixels and filters, which a consumer warp rounds and one
/// copy stores. A residual comes the same way. The copy engine takes its time for each row of a box, so rows are as
/// wide as a tile of n filters has whole ones; 64 filters, since wider ones have no permutation (below), and 96 all the
/// same: their rows meet in two of four groups of banks, which is less than three boxes cost.
LENSLET_HOST_DEVICE constexpr int staged_filters(int n) {
  return n % 64 == 0 ? 64 : n % 96 == 0 ? 96 : n % 104 == 0 ? 104 : n % 32 == 0 ? 32 : 16;
}
inline constexpr int staged_rows = 16;
LENSLET_HOST_DEVICE constexpr int staged_box_bytes(int n) { return staged_rows * staged_filters(n) * 2; }
/// Boxes that are rounded together: those of the same pixels, 128 filters at most, if a warp's slots have room for
/// twice as many; else one.
LENSLET_HOST_DEVICE constexpr int wide_boxes(int n, int slots) {
  const int boxes = n / staged_filters(n);
  return n <= 128 && slots % (2 * boxes) == 0 ? boxes : 1;
}

/// Where the results (row, 8 * eight ...+7) of a box of so many filters lie, in bytes: as copies by a tensor map have
/// them, 16-byte units permuted so that those of eight rows lie in different banks; of 96 filters as they come.
LENSLET_HOST_DEVICE constexpr int staged_offset(int row, int eight, int filters) {
  const int dense = row * filters * 2 + eight * 16;
  return filters >= 96 ? dense : dense ^ ((dense >> 7 & (filters / 8 - 1)) << 4);
}
/// The same of (row, 8 * (eight + 2 * pairs) ...), `offset` being that of (row, 8 * eight ...), of a box that begins at
/// a multiple of its bytes.
LENSLET_HOST_DEVICE constexpr int staged_behind(int offset, int pairs, int filters) {
  return filters >= 96 ? offset + pairs * 32 : offset ^ (pairs * 32);
}

/// Bytes of shared memory: stages of both operands, boxes on their way, and barriers.
struct WgmmaShared {
  int pixels = 0, filters = 0;  ///< of a stage's operands
  int stages = 0;
  int slots = 0;     ///< of a consumer warp, for boxes
  int staging = 0;   ///< where the warps' slots begin
  int barriers = 0;  ///< where they begin: a full one each stage, then an empty one each, then one each slot
  int total = 0;

  bool operator==(const WgmmaShared&) const = default;
};
/// With a residual, whose boxes come as well as leave, slots are worth more than a fourth stage: in TF32
/// 64x64x56x56 -> 256, 1x1, takes 80 us without one, and 174 where parts come one by one, of which its bytes are 49.
constexpr WgmmaShared shared_of(const WgmmaTileShape& tile, bool residual) {
  constexpr int all = 224 << 10, most_stages = 8, most_slots = 8;
  const int warps = tile.consumers * 4;
  const int least_stages = residual ? 3 : 4, box = staged_box_bytes(tile.n);
  WgmmaShared shared;
  shared.pixels = tile.m * wgmma_step * 2;
  shared.filters = tile.n * wgmma_step * 2;
  const int stage = shared.pixels + shared.filters;
  // More of them keep more bytes under way where sums are short. Large tiles are for long ones.
  const int ample = 8192 / box < most_slots ? 8192 / box : most_slots;
  shared.slots = ample == 2 || least_stages * stage + warps * ample * box <= all ? ample : ample / 2;
  const int staging = warps * shared.slots * box, for_stages = all - staging;
  shared.stages = for_stages / stage < most_stages ? for_stages / stage : most_stages;
  shared.staging = shared.stages * stage;
  shared.barriers = shared.staging + staging;
  shared.total = shared.barriers + (2 * shared.stages + warps * shared.slots) * 8;
  return shared;
}

/// Is there a layout of its own for residuals?
constexpr bool has_residual_layout(const WgmmaTileShape& tile) {
  return shared_of(tile, true) != shared_of(tile, false);
}

/// Bytes of shared memory of a block of a cluster: stages of both operands, its share of the tile's sums of all slices,
/// and barriers.
struct SlicesShared {
  int pixels = 0, filters = 0;  ///< of a stage's operands
  int stages = 0;
  int sums = 0;      ///< where they begin
  int barriers = 0;  ///< where they begin: a full one each stage, then an empty one each
  int total = 0;
};
constexpr SlicesShared shared_of(const SlicesTileShape& tile) {
  // Of 228 KiB a multiprocessor, of which each block costs 1 more, and one block can have 227.
  constexpr int all = 227 << 10, half = 113 << 10, most_stages = 8, for_barriers = 256;
  SlicesShared shared;
  shared.pixels = tile.m * wgmma_step * 2;
  shared.filters = tile.n * wgmma_step * 2;
  const int stage = shared.pixels + shared.filters, sums_bytes = tile.m * tile.n * 4;
  const int fitting = ((tile.blocks == 1 ? all : half) - sums_bytes - for_barriers) / stage;
  shared.stages = fitting < most_stages ? fitting : most_stages;
  shared.sums = shared.stages * stage;
  shared.barriers = shared.sums + sums_bytes;
  shared.total = shared.barriers + 2 * shared.stages * 8;
  return shared;
}

/// Who of a cluster finishes what of a tile: units of 16 pixels and 16 filters, those of the same pixels after each
/// other. A consumer warp multiplies the units of 16 pixels, and gives them to their owners; each rank owns as many,
/// which are its slots. All numbers are powers of 2.
inline constexpr int unit_rows = 16, unit_filters = 16, unit_bytes = unit_rows * unit_filters * 4;
struct SlicesShare {
  int each_log2 = 0;  ///< units of a rank
  int warps = 0;      ///< that share them

  LENSLET_HOST_DEVICE constexpr int each() const { return 1 << each_log2; }
  LENSLET_HOST_DEVICE constexpr int owner(int unit) const { return unit >> each_log2; }
  LENSLET_HOST_DEVICE constexpr int slot(int unit) const { return unit & (each() - 1); }
  LENSLET_HOST_DEVICE constexpr int unit(int rank, int slot) const { return rank << each_log2 | slot; }
  /// Slots of a warp, one after the other. With fewer slots than warps the last warps have none: first() is each().
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
LENSLET_HOST_DEVICE constexpr SlicesShare share_of(int m, int n, int slices_log2) {
  return {log2_of(m / unit_rows * (n / unit_filters)) - slices_log2, m / unit_rows};
}
/// Where the 16 bytes (row, half) of a unit lie while its results are brought into the order of memory: those of eight
/// rows in different banks.
LENSLET_HOST_DEVICE constexpr int unit_offset(int row, int half) { return (row * 2 + (half ^ (row >> 2 & 1))) * 16; }

/// The first step of a slice; that of slice `slices` is the number of steps.
LENSLET_HOST_DEVICE constexpr int first_step(int slice, int steps, int slices_log2) {
  return static_cast<int>(static_cast<std::int64_t>(slice) * steps >> slices_log2);
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
/// Finds it. Places are of 16 bits where a kernel's parameters are short of room, and it has several tiles a block to
/// find it for: in wgmma_slices they cost 0.06 us a kernel, ResNet-50 in fp16 at batch 1 0.1973 ms for 0.1941.
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

/// Whether persistent blocks go through the taps of some channels before they come to further ones: pixels that taps
/// share are read again while they are near. Of 16 bits only where there is a stride; clusters do not (4 slices of
/// 64x256x14x14 -> 256, 3x3, take 3 % longer in TF32, 9 % in fp16). us, H100, in the order of the filters and in this
/// one: 64x128x56x56 -> 128, 3x3 by 2, 76.3 and 59.5 in TF32, 33.4 and 30.8 in fp16; 64x256x28x28 -> 256 by 2 48.6 and
/// 45.0, 22.5 and 22.2; 64x128x28x28 -> 128 50.5 and 48.6, but 24.9 and 25.3.
bool goes_by_channels(const ConvProblem& problem);

/// The groups of a tile: channels, then taps of a line, then lines.
struct TermOrder {
  int c = 1, taps = 1;  ///< c: with room; the copy engine refuses boxes that begin between multiples of 16 bytes
  int dilation_w = 1, dilation_h = 1;
  int window_w = 1;  ///< S * dilation_w

  TermOrder() = default;
  explicit TermOrder(const ConvProblem& problem)
      : c(static_cast<int>(aligned_channels(problem.c, problem.storage))),
        taps(static_cast<int>(problem.r * problem.s)),
        dilation_w(static_cast<int>(problem.dilation_w)),
        dilation_h(static_cast<int>(problem.dilation_h)),
        window_w(static_cast<int>(problem.s * problem.dilation_w)) {}
};
struct TermWalk {
  int c = 0, tap = 0, tap_w = 0, tap_h = 0;  ///< of the group: its first channel, its tap, and where that is

  /// Itself, or behind the last group what lies outside of x and of the filters, so that copies of it are zeros.
  LENSLET_HOST_DEVICE TermWalk or_zeros(const TermOrder& order) const {
    if (tap < order.taps) return *this;
    return {order.c, order.taps, 0, 0};
  }
  /// The group that so many come before.
  LENSLET_HOST_DEVICE static TermWalk at(const TermOrder& order, int group, int channels) {
    const int a_tap = (order.c + channels - 1) / channels, taps = order.window_w / order.dilation_w;
    const int tap = group / a_tap, line = tap / taps;
    return {(group - tap * a_tap) * channels, tap, (tap - line * taps) * order.dilation_w, line * order.dilation_h};
  }
  template <bool by_channels = false>
  LENSLET_HOST_DEVICE void next(const TermOrder& order, int channels = wgmma_step) {
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

/// The last channels of a tap, where they fill half of a group of 128 bytes or less: a step of one or two instructions
/// of four, whose windows come by a map with a box of their own; the other products would be of zeros, and boxes that
/// reach beyond the channels take long (ragged_us). Filters come as ever. Of persistent blocks, of several taps and
/// without a residual: the map takes the place of the residual's. us, H100, before and after: 64x96x35x35 -> 96, 3x3,
/// by 256x96 39.5 and 32.3; 64x160x17x17 -> 160, 1x7, by 256x64 23.2 and 19.7; in TF32 64x48x35x35 -> 96, 3x3, by
/// 128x96 42.4 and 37.1. Three instructions' boxes would be as wide as whole ones, and 1x1 gains nothing.
struct TermTail {
  static constexpr int none = std::numeric_limits<int>::max();
  int first = none;  ///< its first channel

  TermTail() = default;
  /// Of groups of so many channels, four instructions. The problem may be that of a set of groups.
  TermTail(const ConvProblem& problem, int width);
  LENSLET_HOST_DEVICE bool exists() const { return first != none; }
  /// The last one has zeros behind the channels, or, of a set, what meets zeros of the filters.
  LENSLET_HOST_DEVICE int instructions(const TermOrder& terms, int width) const {
    return terms.c - first > width / 4 ? 2 : 1;
  }
};
/// The steps of a tile with tails: so many times `whole` ones, then `tails`.
struct TailOrder {
  int times = 0, whole = 0, tails = 0;

  LENSLET_HOST_DEVICE TailOrder(const TermOrder& terms, const TermTail& tail, int width, bool by_channels)
      : times(by_channels ? 1 : terms.taps),
        whole(tail.first / width * (by_channels ? terms.taps : 1)),
        tails(by_channels ? terms.taps : 1) {}
};

/// The channels of a tile, of a convolution of several groups.
struct SetTiles {
  int tiles = 0, channels = 0;  ///< of a set; no tiles: there is one set

  LENSLET_HOST_DEVICE int first_channel(int tile_n) const { return tiles == 0 ? 0 : tile_n / tiles * channels; }
};

struct WgmmaGemmPlan {
  std::int64_t together = 1, sets = 1;            ///< groups of the convolution in a set, and how many sets
  WgmmaTile tile = WgmmaTile::t128x128;           ///< of persistent blocks
  SlicesTile slices_tile = SlicesTile::t128x128;  ///< of clusters
  int slices = 0;                                 ///< a tile's, added up by a cluster; 0: persistent blocks
  int width = wgmma_step;                         ///< channels of a group
  std::int64_t tiles_m = 0, tiles_n = 0;          ///< tiles_n: those of all sets
  std::int64_t groups = 0;                        ///< R*S times C/width rounded up
  std::int64_t steps = 0;                         ///< of a tile, all slices
  int groups_a_step = 1;                          ///< 64 / width, or 1 where there is one group

  /// Stages of which each has the same filters whenever its turn comes, if a block's tiles are all of the same filters:
  /// they need to come once. 0 where a tile has more steps than there are stages.
  int lasting_stages(int stages) const {
    return steps > stages ? 0 : stages / static_cast<int>(steps) * static_cast<int>(steps);
  }

  int m() const { return slices == 0 ? shape_of(tile).m : shape_of(slices_tile).m; }
  int n() const { return slices == 0 ? shape_of(tile).n : shape_of(slices_tile).n; }
  /// The configuration, from which the rest follows: "tile=128x256" of persistent blocks, "tile=64x64 slices=4" of
  /// clusters; then " width=32" where it is not 64, and " together=4".
  std::string str() const;
};

WgmmaGemmPlan cut_wgmma(const ConvProblem& problem, WgmmaTile tile, int width = wgmma_step);
/// `slices` is one of slice_counts, and no more than there are steps.
WgmmaGemmPlan cut_wgmma(const ConvProblem& problem, SlicesTile tile, int slices, int width = wgmma_step);
/// Every cut there is a kernel for: narrow ones where they have fewer terms to multiply than wider ones. Of several
/// groups persistent ones of whole tiles alone, which there may be none of.
std::vector<WgmmaGemmPlan> wgmma_cuts(const ConvProblem& problem);
/// Time in us, launch included.
double wgmma_plan_us(const ConvProblem& problem, const WgmmaGemmPlan& plan, const DeviceProfile& device);
/// The fastest by wgmma_plan_us() on reference_gpu(): slices decide in which order sums are added, so that bits must
/// not depend on the device. Neither tile nor width do that without slices.
WgmmaGemmPlan plan_wgmma_gemm(const ConvProblem& problem);
/// What str() wrote. Error(invalid_argument).
WgmmaGemmPlan read_wgmma_gemm_plan(const ConvProblem& problem, std::string_view config);

}  // namespace lenslet::cuda
