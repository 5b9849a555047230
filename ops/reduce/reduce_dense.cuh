#pragma once
// Reductions of dense x [outer][count][inner] in float32 or halves, the usual ones in networks: global pooling, means
// over pixels, the class of each pixel. Few kernel arguments, 32-bit indices and eight 16-byte loads in flight per
// thread; the kernels for any loops (reduce_kernel.cuh) reach half of an H200's bandwidth.

#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "ops/reduce/reduce_kernels.h"
#include "ops/reduce/rows.cuh"

namespace lenslet::cuda {

/// x [outer][count][inner] to y [outer][inner]. count 0: the loops do not have this form.
struct DenseReduction {
  std::int64_t outer = 1, count = 0, inner = 1;
};
DenseReduction dense_reduction(const reduce::Loops& loops);

// A Fold's neutral(rule) replaces elements past the end: a condition around the additions would make each load wait for
// the previous addition.

inline constexpr int reduce_threads = 256;
inline constexpr int reduce_warps = reduce_threads / warp_threads;

/// Folds `fold` over the lanes that differ in bits from `first` up to `end`, powers of two.
template <typename Fold>
__device__ void merge_lanes(Fold& fold, int first, int end, typename Fold::Rule rule) {
  for (int mask = first; mask < end; mask *= 2) fold.merge(shuffle_xor(fold, mask), rule);
}

/// y[place(output)] from partials [outputs][splits]; one warp per output.
template <typename Fold, typename Place>
__global__ void __launch_bounds__(reduce_threads)
    merge_partials(const Fold* partials, typename Fold::Out* y, std::int64_t outputs, int splits, std::int64_t count,
                   typename Fold::Rule rule, const __grid_constant__ Place place) {
  wait_for_previous();
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const std::int64_t output =
      static_cast<std::int64_t>(blockIdx.x) * reduce_warps + static_cast<int>(threadIdx.x) / warp_threads;
  if (output >= outputs) return;  // whole warps
  Fold fold(rule);
  for (int split = lane; split < splits; split += warp_threads) fold.merge(partials[output * splits + split], rule);
  merge_lanes(fold, 1, warp_threads, rule);
  if (lane == 0) y[place(output)] = fold.result(count, rule);
}
struct InOrder {
  __device__ std::int64_t operator()(std::int64_t output) const { return output; }
};

inline constexpr int dense_unroll = 8;
inline constexpr int row_threads_most = 1024;

/// Elements per 16-byte access.
template <typename In>
inline constexpr int fold_pack = 16 / static_cast<int>(sizeof(In));

/// x [rows][length], length below 2^30 and a multiple of `pack`: 1 << group_bits adjacent threads share a row.
template <typename Fold, int pack>
__global__ void __launch_bounds__(row_threads_most, 1)
    reduce_rows(const typename Fold::In* x, typename Fold::Out* y, std::int64_t rows, int length, int group_bits,
                typename Fold::Rule rule) {
  using Pack = Floats<pack, typename Fold::In>;
  wait_for_previous();
  let_next_start();
  alignas(16) __shared__ unsigned char shared_bytes[row_threads_most / warp_threads * sizeof(Fold)];
  auto* shared = reinterpret_cast<Fold*>(shared_bytes);
  const int thread = static_cast<int>(threadIdx.x), group = 1 << group_bits, member = thread & (group - 1);
  const std::int64_t row =
      ((static_cast<std::int64_t>(blockIdx.x) * static_cast<int>(blockDim.x)) >> group_bits) + (thread >> group_bits);
  Fold fold(rule);
  if (row < rows) {
    const auto* from = reinterpret_cast<const Pack*>(x + row * length);
    const int packs = length / pack;
    Pack filler;
#pragma unroll
    for (int k = 0; k < pack; ++k) filler.at[k] = Fold::neutral(rule);
    take_turns<dense_unroll>(
        member, packs, group, filler, [&](int i) { return from[i]; },
        [&](const Pack& values, int i) {
#pragma unroll
          for (int k = 0; k < pack; ++k) fold.add(values.at[k], i * pack + k, rule);
        });
  }
  const int warps = group / warp_threads;
  merge_lanes(fold, 1, warps > 0 ? warp_threads : group, rule);
  if (warps > 1) {
    if (thread % warp_threads == 0) shared[thread / warp_threads] = fold;
    __syncthreads();
    if (member >= warp_threads) return;  // whole warps
    if (member < warps) fold = shared[thread / warp_threads + member];
    merge_lanes(fold, 1, warps, rule);
  }
  if (member == 0 && row < rows) y[row] = fold.result(length, rule);
}

/// A row of take_staged_rows.
template <typename Fold>
struct FoldStaged {
  typename Fold::Rule rule;
  __device__ typename Fold::Out operator()(const float* row, int length) const {
    Fold fold(rule);
    for (int i = 0; i < length; ++i) fold.add(row[i], i, rule);
    return fold.result(length, rule);
  }
};

struct ColumnGeometry {
  std::int64_t columns = 0;  ///< of `pack` elements each, in x and in y
  std::int64_t stride = 0;   ///< between a column's elements, in packs
  std::int64_t count = 0;    ///< elements of a column
  std::int64_t chunk = 0;    ///< elements of a column that a block takes
  FastDivider inner;         ///< columns of an outer index
  int lane_bits = 0;         ///< log2 of the columns of a block: at most 5, or 8: a column a thread
  int splits = 1;
};
/// Depends on shape and type only, so that all devices give the same bits. For inner in whole packs of 16 bytes.
ColumnGeometry column_geometry(const DenseReduction& dense, int pack);

/// A thread's load in reduce_columns.
template <typename In>
struct ColumnPack : std::type_identity<Floats<fold_pack<In>, In>> {};
template <typename In>
requires is_half<In>
struct ColumnPack<In> : std::type_identity<EightHalves<In>> {
};

template <int pack, typename In>
__device__ void fill(Floats<pack, In>& values, In value) {
#pragma unroll
  for (int k = 0; k < pack; ++k) values.at[k] = value;
}
template <typename In>
__device__ void fill(EightHalves<In>& values, In value) {
  const std::uint32_t pair = paired(value, value);
  values = {{pair, pair, pair, pair}};
}
template <int pack, typename In>
__device__ In element(const Floats<pack, In>& values, int k) {
  return values.at[k];
}
template <typename In>
__device__ In element(const EightHalves<In>& values, int k) {
  return values.at(k);
}

/// True if the fold accepts short float sums.
template <typename Fold>
concept TakesSums = requires(Fold fold) {
  fold.add_short(0.0F);
};

template <typename Out, int pack>
struct alignas(16) OutPack {
  Out at[pack];
};

template <typename Fold, int count>
struct Folds {
  Fold at[count];
};
template <typename Fold, std::size_t... k>
__device__ Folds<Fold, sizeof...(k)> folds_of_nothing(typename Fold::Rule rule, std::index_sequence<k...>) {
  return {{(static_cast<void>(k), Fold(rule))...}};
}

/// Grid: (columns, splits); a thread folds the adjacent columns of a pack. Eight folds spill with three blocks per
/// multiprocessor, except those that accept short sums.
template <typename Fold>
__global__ void __launch_bounds__(reduce_threads, fold_pack<typename Fold::In> > 4 && !TakesSums<Fold> ? 2 : 3)
    reduce_columns(const typename Fold::In* x, typename Fold::Out* y, Fold* partials,
                   const __grid_constant__ ColumnGeometry g, typename Fold::Rule rule) {
  constexpr int pack = fold_pack<typename Fold::In>;
  using Pack = typename ColumnPack<typename Fold::In>::type;
  wait_for_previous();
  let_next_start();
  const int thread = static_cast<int>(threadIdx.x), lanes = 1 << g.lane_bits, depth = reduce_threads >> g.lane_bits;
  const int lane = thread & (lanes - 1), member = thread >> g.lane_bits;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) << g.lane_bits;
  const std::int64_t column = first_column + lane;
  const auto neutral = static_cast<typename Fold::In>(Fold::neutral(rule));
  Folds<Fold, pack> folds = folds_of_nothing<Fold>(rule, std::make_index_sequence<pack>());
  if (column < g.columns) {
    const std::int64_t outer = g.inner.divide(static_cast<std::uint32_t>(column));
    const auto* from = reinterpret_cast<const Pack*>(x) + outer * (g.count - 1) * g.stride + column;
    const std::int64_t start = static_cast<std::int64_t>(blockIdx.y) * g.chunk;
    const std::int64_t end = start + g.chunk < g.count ? start + g.chunk : g.count;
    const auto* at = from + (start + member) * g.stride;
    const std::int64_t step = depth * g.stride;
#pragma unroll 1
    for (std::int64_t i = start + member; i < end; i += dense_unroll * depth, at += dense_unroll * step) {
      Pack values[dense_unroll];
#pragma unroll
      for (int j = 0; j < dense_unroll; ++j) {
        fill(values[j], neutral);
        if (i + j * depth < end) values[j] = at[j * step];
      }
      if constexpr (TakesSums<Fold>) {
#pragma unroll
        for (int k = 0; k < pack; ++k) {
          float sum = 0;
#pragma unroll
          for (int j = 0; j < dense_unroll; ++j) sum = Fold::added(sum, element(values[j], k));
          folds.at[k].add_short(sum);
        }
      } else {
#pragma unroll
        for (int j = 0; j < dense_unroll; ++j)
#pragma unroll
          for (int k = 0; k < pack; ++k) folds.at[k].add(element(values[j], k), i + j * depth, rule);
      }
    }
  }
  if (depth == 1) {
    if (column >= g.columns) return;
    OutPack<typename Fold::Out, pack> outs;
#pragma unroll
    for (int k = 0; k < pack; ++k) outs.at[k] = folds.at[k].result(g.count, rule);
    reinterpret_cast<OutPack<typename Fold::Out, pack>*>(y)[column] = outs;
    return;
  }
  alignas(16) __shared__ unsigned char shared_bytes[reduce_threads * pack * sizeof(Fold)];
  auto* shared = reinterpret_cast<Fold*>(shared_bytes);
#pragma unroll
  for (int k = 0; k < pack; ++k) merge_lanes(folds.at[k], lanes, warp_threads, rule);
  if (thread % warp_threads < lanes)
#pragma unroll
    for (int k = 0; k < pack; ++k) shared[(thread / warp_threads * lanes + lane) * pack + k] = folds.at[k];
  __syncthreads();
  const std::int64_t output = first_column * pack + thread;
  if (thread >= pack * lanes || output >= g.columns * pack) return;
  Fold fold = shared[thread];
#pragma unroll
  for (int warp = 1; warp < reduce_warps; ++warp) fold.merge(shared[warp * pack * lanes + thread], rule);
  if (g.splits > 1)
    partials[output * g.splits + blockIdx.y] = fold;
  else
    y[output] = fold.result(g.count, rule);
}

/// log2 of the threads per row of `packs` loads: about eight loads in flight each. With few rows more threads, since
/// one row's time is then the total.
inline int row_group_bits(std::int64_t rows, std::int64_t packs) {
  constexpr std::int64_t threads_wanted = 1 << 16;
  int bits = 0;
  while (bits < 5 && packs > (std::int64_t{bits < 3 ? 1 : dense_unroll} << bits)) ++bits;  // eight read whole sectors
  while (bits < 10 && packs > (bits < 5 ? std::int64_t{1} : std::int64_t{4}) << bits && rows << bits < threads_wanted)
    ++bits;
  return bits;
}

/// Should reduce_rows do `dense`? Each row is one block's, so a few long rows would leave the device idle.
inline bool rows_fit(const DenseReduction& dense) {
  constexpr std::int64_t one_block = 16384, enough_rows = 64, longest = std::int64_t{1} << 30;
  return dense.inner == 1 && dense.count < longest && (dense.outer >= enough_rows || dense.count <= one_block);
}

/// Queues the kernels; false if shape or addresses are unsuitable, with nothing queued. `workspace`: as for
/// reduce_by().
template <typename Fold>
bool reduce_dense(const Context& context, const DenseReduction& dense, typename Fold::Rule rule,
                  const typename Fold::In* x, typename Fold::Out* y, void* workspace) {
  constexpr int pack = fold_pack<typename Fold::In>;
  if (dense.count == 0) return false;
  if (dense.inner == 1) {
    if (!rows_fit(dense)) return false;
    const auto length = static_cast<int>(dense.count);
    if constexpr (std::is_same_v<typename Fold::In, float>)
      if (take_if_staged(context, x, y, dense.outer, dense.count, FoldStaged<Fold>{rule})) return true;
    const bool packs = length % pack == 0 && quad_aligned(x);
    const int bits = row_group_bits(dense.outer, packs ? length / pack : length);
    const int threads = bits > 8 ? 1 << bits : 256;
    launch(context, packs ? reduce_rows<Fold, pack> : reduce_rows<Fold, 1>,
           dim3(blocks_for(dense.outer, threads >> bits)), dim3(static_cast<unsigned>(threads)), 0, x, y, dense.outer,
           length, bits, rule);
    return true;
  }
  const ColumnGeometry g = column_geometry(dense, pack);
  if (g.columns == 0 || !quad_aligned(x, y)) return false;
  auto* partials = static_cast<Fold*>(workspace);
  launch(context, reduce_columns<Fold>, dim3(blocks_for(g.columns, 1 << g.lane_bits), static_cast<unsigned>(g.splits)),
         dim3(reduce_threads), 0, x, y, partials, g, rule);
  if (g.splits > 1)
    launch(context, merge_partials<Fold, InOrder>, dim3(blocks_for(g.columns * pack, reduce_warps)),
           dim3(reduce_threads), 0, partials, y, g.columns * pack, g.splits, g.count, rule, InOrder());
  return true;
}

}  // namespace lenslet::cuda
