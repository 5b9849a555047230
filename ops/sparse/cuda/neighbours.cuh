#pragma once
// Shared by neighbour_mma and neighbour_tiles: a block's neighbour table and its stores.
//
// A block keeps a table of its outputs in shared memory: per tap the row of x paired with each output, or -1, and per
// warp tile the taps that occur in it. It is copied from the table that the rulebook's step made for all layers, if
// there is one. Otherwise it is built from the rulebook's sorted lists: a 17-way search finds each tap's range of
// pairs. From then on warps are independent: each walks its own tile's taps in ascending order.

#include "base/cuda/copy_async.cuh"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/stored.cuh"
#include "ops/core/activation.cuh"
#include "ops/sparse/cuda/device_rulebook.cuh"
#include "ops/sparse/cuda/neighbour_plan.h"

namespace lenslet::cuda {

struct NeighbourCall {
  DeviceRulebook rulebook;
  DeviceActivation activation;
  NeighbourPlan plan;
  const void *x = nullptr, *residual = nullptr;  ///< residual like y, or null; may be y
  const char* w = nullptr;                       ///< pack_neighbour_filters()
  const float* bias = nullptr;                   ///< [K] or null
  void* y = nullptr;
  const int* table = nullptr;  ///< [taps][table_rows], or null
  int* fault = nullptr;
  int table_rows;
  int channels, filters;
  int chunks;          ///< steps of a tap
  bool early = false;  ///< the rulebook and its table are known: read ahead of wait_for_previous()
  bool store_fours;    ///< four numbers of y at a time are aligned

  NeighbourCall(const SparseConvProblem& p, std::int64_t length, const NeighbourPlan& tiling,
                SparseArithmetic arithmetic)
      : rulebook(p, length),
        activation(p.activation),
        plan(tiling),
        table_rows(static_cast<int>(p.table_rows)),
        channels(static_cast<int>(p.channels)),
        filters(static_cast<int>(p.filters)),
        chunks(static_cast<int>(tiling.chunks(cuda::row_bytes(p, arithmetic)))) {}
};

/// Adds the residual to `width` sums of an output.
template <typename T, int width>
__device__ inline void add_residual(const NeighbourCall& call, float (&value)[width], long long at) {
  if (call.residual == nullptr) return;
  float added[width];
  read_stored(added, static_cast<const T*>(call.residual) + at);
#pragma unroll
  for (int e = 0; e < width; ++e) value[e] += added[e];
}

/// Epilogue and elementwise store of four accumulators, of filters `k` and up as far as they exist; any activation. Not
/// inlined: copies per accumulator would be a fourth of a kernel's code.
template <typename T>
__device__ __noinline__ void finish_slowly(const NeighbourCall& call, float4 four, long long at, int k) {
  const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll 1
  for (int e = 0; e < 4 && k + e < call.filters; ++e) {
    float value[1] = {values[e]};
    if (call.bias != nullptr) value[0] += call.bias[k + e];
    add_residual<T>(call, value, at + e);
    if constexpr (sizeof(T) == 2)
      call.activation.apply_for_halves(value);
    else
      value[0] = call.activation(value[0]);
    write_stored(static_cast<T*>(call.y) + at + e, value);
  }
}

/// The same, with one vector store where possible.
template <typename T>
__device__ inline void finish_four(const NeighbourCall& call, float (&value)[4], int row, int k) {
  const long long at = static_cast<long long>(row) * call.filters + k;
  if (!call.store_fours || !call.activation.is_clamp())
    return finish_slowly<T>(call, make_float4(value[0], value[1], value[2], value[3]), at, k);
  if (k >= call.filters) return;
  if (call.bias != nullptr) {
    float bias[4];
    read_stored(bias, call.bias + k);
#pragma unroll
    for (int e = 0; e < 4; ++e) value[e] += bias[e];
  }
  add_residual<T>(call, value, at);
  const Clamp clamp = call.activation.clamp();
#pragma unroll
  for (float& v : value) v = clamp(v);
  write_stored(static_cast<T*>(call.y) + at, value);
}

/// Zeros this block's share of the rows from `first` on, which no block computes.
template <typename T>
__device__ inline void clear_share(const NeighbourCall& call, int first) {
  const long long all = static_cast<long long>(call.rulebook.most_outputs - first) * call.filters;
  auto* const y = static_cast<T*>(call.y) + static_cast<long long>(first) * call.filters;
  const long long stride = static_cast<long long>(gridDim.x) * gridDim.y * blockDim.x;
  const long long mine = (static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  if (call.store_fours) {
    const float none[4] = {};
    for (long long i = 4 * mine; i < all; i += 4 * stride) write_stored(y + i, none);
  } else {
    const float none[1] = {};
    for (long long i = mine; i < all; i += stride) write_stored(y + i, none);
  }
}

/// A block's shared memory, in this order.
struct NeighbourShared {
  char* filters;        ///< [1 or 2 buffers][columns / width][steps of a stage]
  char* rows;           ///< of each warp: neighbour_tiles' rows of x
  int* table;           ///< [taps][rows]
  unsigned* has;        ///< [tiles][4]: bits of the taps that a tile has
  int* ends;            ///< [taps][2]: where the block's pairs begin and end
  int* header;          ///< of the rulebook
  unsigned char* taps;  ///< [warps][128]: those of a warp's tile

  __device__ NeighbourShared(char* memory, const NeighbourCall& call) {
    filters = memory;
    rows = filters + call.plan.filter_bytes(call.rulebook.volume * call.chunks);
    table = reinterpret_cast<int*>(rows + call.plan.row_bytes());
    has = reinterpret_cast<unsigned*>(table + call.rulebook.volume * call.plan.rows);
    ends = reinterpret_cast<int*>(has + call.plan.rows / call.plan.tile_rows() * 4);
    header = ends + 2 * call.rulebook.volume;
    taps = reinterpret_cast<unsigned char*>(header + 3 + call.rulebook.volume);
  }
};

/// The outputs of a block.
struct BlockOutputs {
  int first, count;    ///< those that there are; none where count <= 0
  int rows;            ///< of its table
  int tiles_n, items;  ///< tiles of filters, and of filters and outputs
};

/// Lower bounds: for each of `searches` sorted lists, the first pair whose output is not below the wanted one. 16 lanes
/// per list, several lists at a time, to hide memory latency. In unsorted lists the result is arbitrary but
/// deterministic. list(search, values, count, wanted); put(search, place).
template <typename List, typename Put>
__device__ inline void bisect(int searches, const List& list, const Put& put) {
  constexpr int lanes = 16, at_once = 4;
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const int groups = static_cast<int>(blockDim.x) / lanes, shift = static_cast<int>(threadIdx.x) % 32 / lanes * lanes;
  for (int first = 0; first < searches; first += groups * at_once) {
    const int* values[at_once];
    int from[at_once], to[at_once], wanted[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int search = first + j * groups + group;
      from[j] = to[j] = wanted[j] = 0;
      values[j] = nullptr;
      if (search < searches) list(search, values[j], to[j], wanted[j]);
    }
    while (true) {
      bool left = false;
#pragma unroll
      for (int j = 0; j < at_once; ++j) left = left || from[j] < to[j];
      if (!__any_sync(0xffffffffU, left)) break;
      int found[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        const int at = from[j] + (lane + 1) * ((to[j] - from[j]) / lanes + 1) - 1;
        found[j] = at < to[j] ? __ldcg(values[j] + at) : 0x7fffffff;
      }
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        const int step = (to[j] - from[j]) / lanes + 1;
        const unsigned below = __ballot_sync(0xffffffffU, found[j] < wanted[j]) >> shift & 0xffffU;
        const int passed = __ffs(static_cast<int>(~below)) - 1;  // those in front: at most 16
        from[j] += passed * step;
        to[j] = max(from[j], min(to[j], from[j] + step - 1));
      }
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int search = first + j * groups + group;
      if (search < searches && lane == 0) put(search, from[j]);
    }
  }
}

/// Loads the rulebook's header into shared memory; returns the block's outputs.
__device__ inline BlockOutputs take_block(const NeighbourCall& call, const NeighbourShared& shared,
                                          DeviceRulebook::Counts& counts) {
  for (int i = static_cast<int>(threadIdx.x); i < 3 + call.rulebook.stored(); i += static_cast<int>(blockDim.x))
    shared.header[i] = __ldcg(call.rulebook.values + i);
  __syncthreads();
  counts = call.rulebook.counts(shared.header);
  BlockOutputs block;
  block.rows = call.plan.rows_of(counts.outputs);
  block.first = static_cast<int>(blockIdx.x) * block.rows;
  block.count = min(block.rows, counts.outputs - block.first);
  return block;
}

/// Fills a block's table, with a barrier at the end. Every pair is checked by the block that its position belongs to,
/// so that unsorted lists are always detected.
template <int tile_rows>
__device__ inline void make_table(const NeighbourCall& call, const NeighbourShared& shared,
                                  DeviceRulebook::Counts counts, const BlockOutputs& block) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int warp = thread / 32, warps = threads / 32, lane = thread % 32;
  const int taps = call.rulebook.volume, tiles = block.rows / tile_rows, last = block.first + block.count;
  bisect(
      2 * taps,
      [&](int search, const int*& values, int& count, int& wanted) {
        const DevicePairs pairs = call.rulebook.pairs(shared.header, search / 2, counts.outputs);
        if (pairs.out == nullptr) return;
        values = pairs.out;
        count = pairs.count;
        wanted = search % 2 == 0 ? block.first : last;
      },
      [&](int search, int place) { shared.ends[search] = place; });
  const int centre = call.rulebook.submanifold ? taps / 2 : -1;
  for (int tap = warp; tap < taps; tap += warps)
    for (int row = lane; row < block.rows; row += 32)
      shared.table[tap * block.rows + row] = tap == centre && row < block.count ? block.first + row : -1;
  for (int i = thread; i < tiles * 4; i += threads)
    shared.has[i] = i % 4 == centre / 32 && centre >= 0 && i / 4 * tile_rows < block.count ? 1U << centre % 32 : 0;
  __syncthreads();

  bool wrong = !counts.valid;
  constexpr int at_once = 4;  // taps of a warp whose pairs are read together
  for (int first_tap = warp; first_tap < taps; first_tap += warps * at_once) {
    const int *in[at_once], *out[at_once];
    int at[at_once], end[at_once], before[at_once];
    bool more = false;
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int tap = first_tap + j * warps;
      in[j] = out[j] = nullptr;
      at[j] = end[j] = 0;
      before[j] = block.first - 1;
      if (tap >= taps) continue;
      const DevicePairs pairs = call.rulebook.pairs(shared.header, tap, counts.outputs);
      wrong = wrong || !pairs.valid;
      if (pairs.out == nullptr) continue;
      in[j] = pairs.in;
      out[j] = pairs.out;
      at[j] = shared.ends[2 * tap];
      end[j] = shared.ends[2 * tap + 1];
      if (end[j] < at[j] || (block.first == 0 && at[j] != 0) || (last == counts.outputs && end[j] != pairs.count))
        wrong = true;
      more = more || at[j] < end[j];
    }
    while (more) {
      int input[at_once], output[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        const int i = at[j] + lane;
        output[j] = i < end[j] ? __ldcg(out[j] + i) : 0x7fffffff;
        input[j] = i < end[j] ? __ldcg(in[j] + i) : 0;
      }
      more = false;
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        const int left = __shfl_up_sync(0xffffffffU, output[j], 1), previous = lane == 0 ? before[j] : left;
        before[j] = __shfl_sync(0xffffffffU, output[j], 31);
        if (at[j] + lane < end[j]) {
          const int tap = first_tap + j * warps, row = output[j] - block.first;
          if (previous >= output[j] || row < 0 || row >= block.count || input[j] < 0 || input[j] >= counts.inputs) {
            wrong = true;
          } else {
            shared.table[tap * block.rows + row] = input[j];
            const int tile = row / tile_rows;
            if (lane == 0 || previous < block.first + tile * tile_rows)
              atomicOr(shared.has + tile * 4 + tap / 32, 1U << tap % 32);
          }
        }
        at[j] += 32;
        more = more || at[j] < end[j];
      }
    }
  }
  if (wrong) report(call.fault);
  __syncthreads();
}

/// The same from the table that the rulebook's step made.
template <int tile_rows>
__device__ inline void copy_table(const NeighbourCall& call, const NeighbourShared& shared,
                                  DeviceRulebook::Counts counts, const BlockOutputs& block) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), lane = thread % 32;
  const int fours = block.rows / 4, all = call.rulebook.volume * fours;
  const int count = min(block.count, call.table_rows - block.first);
  for (int i = thread; i < block.rows / tile_rows * 4; i += threads) shared.has[i] = 0;
  if (!counts.valid) report(call.fault);
  __syncthreads();
  constexpr int at_once = 4;
  for (int first = 0; first < all; first += threads * at_once) {
    int4 inputs[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int i = first + j * threads + thread, tap = i / fours, row = (i - tap * fours) * 4;
      const int left = i < all ? count - row : 0;
      inputs[j] = make_int4(-1, -1, -1, -1);
      if (left > 0)
        inputs[j] = __ldcg(reinterpret_cast<const int4*>(call.table + static_cast<long long>(tap) * call.table_rows +
                                                         block.first + row));
      if (left < 2) inputs[j].y = -1;
      if (left < 3) inputs[j].z = -1;
      if (left < 4) inputs[j].w = -1;
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int i = first + j * threads + thread, tap = i / fours, row = (i - tap * fours) * 4;
      if (i < all) reinterpret_cast<int4*>(shared.table)[i] = inputs[j];
      // Rows of a tile belong to 4 or 8 lanes: at least 16.
      const bool some = (inputs[j].x & inputs[j].y & inputs[j].z & inputs[j].w) >= 0;
      const unsigned of_lanes = __ballot_sync(0xffffffffU, some) >> (lane & ~3) & 15U;
      if (lane % 4 == 0 && of_lanes != 0) atomicOr(shared.has + row / tile_rows * 4 + tap / 32, 1U << tap % 32);
    }
  }
  __syncthreads();
}

/// A block's filters in shared memory: double-buffered stages of a few steps, repeated for each round of tiles; or all
/// steps, loaded once. Each warp tracks its own position; all warps go through the same number of stages, because they
/// synchronise between stages.
template <int width>
class FilterStages {
 public:
  /// Called before wait_for_previous().
  __device__ FilterStages(const NeighbourCall& call, char* memory)
      : call_(call), memory_(memory), stage_(call.plan.stage), tiles_n_(call.plan.columns / width) {
    const int stages = call.plan.stages(call.rulebook.volume * call.chunks);
    start(call_, memory_, 0);
    if (stages > 1) start(call_, memory_, 1);
  }
  /// Waits for this thread's loads of stage 0; a barrier must follow.
  __device__ void wait_for_first() const {
    if (stage_ < call_.rulebook.volume * call_.chunks)
      wait_for_copies<1>();
    else
      wait_for_copies<0>();
  }
  __device__ void set_rounds(int rounds) {
    const int stages = call_.plan.stages(call_.rulebook.volume * call_.chunks);
    last_ = stages > 1 ? rounds * stages - 1 : 0;
  }

  /// By the whole warp: the filters of a step, which is not before the warp's current stage.
  __device__ const char* of(int step, int tile_n) {
    while (step >= first_ + stage_) advance();
    return memory_ + (((at_ & 1) * tiles_n_ + tile_n) * stage_ + step - first_) * step_bytes();
  }
  /// Advances to the first step of the next round, if any.
  __device__ void end_round() {
    if (last_ == 0) return;
    do
      if (at_ < last_)
        advance();
      else
        return;
    while (first_ != 0);
  }

 private:
  __device__ int step_bytes() const { return call_.plan.step_bytes() * width; }
  __device__ void advance() {
    ++at_;
    first_ = first_ + stage_ >= call_.rulebook.volume * call_.chunks ? 0 : first_ + stage_;
    wait_for_copies<0>();
    // Not __syncthreads(), which is "aligned" (all threads at the same instruction): warps arrive here from several
    // places.
    asm volatile("barrier.sync 1, %0;" ::"r"(blockDim.x) : "memory");
    if (at_ < last_) start(call_, memory_, at_ + 1);
  }
  __device__ static void start(const NeighbourCall& call, char* memory, int number) {
    const int steps = call.rulebook.volume * call.chunks, stage = call.plan.stage, tiles_n = call.plan.columns / width;
    const int first = number % call.plan.stages(steps) * stage, step_bytes = call.plan.step_bytes() * width;
    const int bytes = min(stage, steps - first) * step_bytes;
#pragma unroll 1
    for (int n = 0; n < tiles_n; ++n) {
      char* const to = memory + ((number & 1) * tiles_n + n) * stage * step_bytes;
      const char* const from =
          call.w + ((static_cast<long long>(blockIdx.y) * tiles_n + n) * steps + first) * step_bytes;
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += static_cast<int>(blockDim.x) * 16)
        copy_async_16(to + i, from + i, true);
    }
    commit_copies();
  }

  const NeighbourCall& call_;
  char* const memory_;
  const int stage_, tiles_n_;
  int at_ = 0, first_ = 0, last_ = 0;
};

/// A block's prologue: its outputs, their table and the first filters. Clears rows that no block computes.
template <typename T, int tile_rows, int width>
__device__ inline BlockOutputs begin_block(const NeighbourCall& call, const NeighbourShared& shared,
                                           FilterStages<width>& filters) {
  if (!call.early) {
    wait_for_previous();
    let_next_start();
  }
  DeviceRulebook::Counts counts;
  BlockOutputs block = take_block(call, shared, counts);
  filters.wait_for_first();  // before the barriers of the table
  if (block.count > 0 || block.first == 0) {
    if (call.table != nullptr)
      copy_table<tile_rows>(call, shared, counts, block);
    else
      make_table<tile_rows>(call, shared, counts, block);
  }
  if (call.early) {
    wait_for_previous();
    let_next_start();
  }
  clear_share<T>(call, counts.outputs);
  if (block.count <= 0) wait_for_copies<0>();
  const int warps = static_cast<int>(blockDim.x) / 32;
  block.tiles_n = call.plan.columns / width;
  block.items = (max(block.count, 0) + tile_rows - 1) / tile_rows * block.tiles_n;
  filters.set_rounds((block.items + warps - 1) / warps);
  return block;
}

/// Walks a tile's taps in ascending order, each in the steps of its channels. By a whole warp.
class Steps {
 public:
  /// `taps`: 128 bytes of the warp's.
  __device__ Steps(const unsigned* has, unsigned char* taps, int chunks) : taps_(taps), chunks_(chunks) {
    const unsigned lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (unsigned word = 0; word < 4; ++word) {
      const unsigned bits = has[word];
      if ((bits >> lane & 1) != 0)
        taps[count_ + __popc(bits & ((1U << lane) - 1))] = static_cast<unsigned char>(word * 32 + lane);
      count_ += __popc(bits);
    }
    __syncwarp();
    if (count_ > 0) tap_ = taps_[0];
  }

  __device__ bool there() const { return at_ < count_; }
  __device__ int tap() const { return tap_; }
  __device__ int chunk() const { return chunk_; }
  __device__ void next() {
    if (++chunk_ < chunks_) return;
    chunk_ = 0;
    if (++at_ < count_) tap_ = taps_[at_];
  }

 private:
  const unsigned char* const taps_;
  const int chunks_;
  int count_ = 0, at_ = 0, tap_ = 0, chunk_ = 0;
};

}  // namespace lenslet::cuda
