#pragma once
// The kernel of gathered_tiles. A block keeps the accumulators of some outputs in shared memory and walks the taps. A
// tap's pairs for these outputs are adjacent in the rulebook, so their rows of x are gathered into a full tile,
// multiplied by the tap's filters and added to the accumulators. Only existing pairs are multiplied, and no neighbours
// are looked up. Each output gets its taps in order, in one block or in splits whose sums the last one to end adds in
// slice order: bit-reproducible.
//
// A step is a few units, of one batch or several, so that narrow rows are not waited for batch by batch. While a step
// is multiplied, the next ones load (cp.async), and the site numbers of later batches.

#include "base/cuda/copy_async.cuh"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/stored.cuh"
#include "ops/core/activation.cuh"
#include "ops/sparse/cuda/block_pairs.h"
#include "ops/sparse/cuda/gathered_stage.cuh"

namespace lenslet::cuda {

struct GatheredCall {
  DeviceRulebook rulebook;
  DeviceActivation activation;
  GatheredPlan plan;
  const void *x = nullptr, *residual = nullptr;  ///< residual like y, or null; may be y
  const char* w = nullptr;                       ///< pack_gathered_filters()
  const float* bias = nullptr;                   ///< [K] or null
  void* y = nullptr;
  const int* begins = nullptr;  ///< find_block_pairs()
  int* done = nullptr;          ///< finished splits per block and tile; zero at first
  float4* parts = nullptr;      ///< partial sums per split
  int* fault = nullptr;
  int channels, filters, blocks;
  int units;         ///< of a pair
  int numbers_mask;  ///< batches whose numbers are there, less one: slots in turn
  int lead;          ///< batches that numbers are loaded before their rows
  int access;        ///< bytes by which rows of x are read: 16 or 4
  bool store_fours;  ///< four numbers of y at a time are aligned

  GatheredCall(const SparseConvProblem& p, std::int64_t length, const GatheredPlan& tiling)
      : rulebook(p, length),
        activation(p.activation),
        plan(tiling),
        channels(static_cast<int>(p.channels)),
        filters(static_cast<int>(p.filters)),
        blocks(static_cast<int>(tiling.blocks(p))),
        units(static_cast<int>(gathered_units(p))),
        numbers_mask(tiling.number_slots(units) - 1),
        lead(tiling.ahead * tiling.step_batches(units)) {}
};

/// Pairs of one tap that are multiplied together. In shared memory.
struct alignas(16) Batch {
  int tap, rows;
  int in, out;  ///< where in the rulebook their numbers begin; in < 0: each site with itself, from number `out` on
};

/// Epilogue and store of `width` accumulators of an output.
template <int width>
__device__ inline void finish(const GatheredCall& call, float (&value)[width], long long at, int k) {
  if (call.bias != nullptr)
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] += call.bias[k + e];
  if (call.residual != nullptr) {
    float added[width];
    read_stored(added, static_cast<const float*>(call.residual) + at);
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] += added[e];
  }
  if (call.activation.is_clamp()) {
    const Clamp clamp = call.activation.clamp();
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] = clamp(value[e]);
  } else {
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] = call.activation(value[e]);
  }
  write_stored(static_cast<float*>(call.y) + at, value);
}

/// Stores y of the block's rows, `there` in all, from the accumulators; zeros from row `rows` on.
template <int columns, int width>
__device__ inline void store_rows(const GatheredCall& call, const float* acc, int first_row, int there, int rows,
                                  int first_k) {
  constexpr int of_row = columns / width;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < there * of_row; item += block_threads(columns)) {
    const int row = item / of_row, column = item % of_row * width, k = first_k + column;
    if (k >= call.filters) continue;
    const long long at = static_cast<long long>(first_row + row) * call.filters + k;
    float value[width] = {};
    if (row < rows) {
      const float* const from = acc + acc_offset<columns>(row, column / 4) + column % 4;
      read_stored(value, from);
      finish(call, value, at, k);
    } else {
      write_stored(static_cast<float*>(call.y) + at, value);
    }
  }
}
template <int columns>
__device__ inline void store_rows(const GatheredCall& call, const float* acc, int first_row, int there, int rows,
                                  int first_k) {
  if (call.store_fours)
    store_rows<columns, 4>(call, acc, first_row, there, rows, first_k);
  else
    store_rows<columns, 1>(call, acc, first_row, there, rows, first_k);
}

/// Zeros this block's share of the rows from `first` on, which no block computes.
template <int columns>
__device__ inline void clear_share(const GatheredCall& call, int first, int first_k) {
  const int all = call.rulebook.most_outputs - first, blocks = static_cast<int>(gridDim.x);
  if (all <= 0) return;
  const int share = (all + blocks - 1) / blocks;
  const long long mine = first + static_cast<long long>(blockIdx.x) * share;
  const long long left = call.rulebook.most_outputs - mine;
  if (left > 0)
    store_rows<columns>(call, nullptr, static_cast<int>(mine),
                        static_cast<int>(min(left, static_cast<long long>(share))), 0, first_k);
}

/// A block's shared memory, in this order.
template <int columns>
struct GatheredShared {
  float* acc;    ///< [rows][columns], acc_offset()
  char* stages;  ///< per step in flight: its units' rows of x, then filters
  int* numbers;  ///< of each batch: inputs, then rows of the block
  Batch* batches;
  int units;  ///< of a step
  static constexpr int a_bytes = batch_rows * unit_bytes, b_bytes = columns * unit_bytes;

  __device__ GatheredShared(char* memory, const GatheredCall& call) : units(call.plan.units) {
    acc = reinterpret_cast<float*>(memory);
    stages = memory + call.plan.rows * columns * static_cast<int>(sizeof(float));
    numbers = reinterpret_cast<int*>(stages + (call.plan.ahead + 1) * stage_bytes());
    batches = reinterpret_cast<Batch*>(numbers + (call.numbers_mask + 1) * 2 * batch_rows);
  }
  __device__ int stage_bytes() const { return units * (a_bytes + b_bytes); }
};

/// Lists and counts a block's batches, tap by tap. Called by all threads, with a barrier at the end.
template <int columns>
__device__ inline int list_batches(const GatheredCall& call, const GatheredShared<columns>& shared,
                                   DeviceRulebook::Counts counts, int block, int first_row, int block_rows) {
  static_assert(block_threads(columns) >= 125);
  auto* const of_tap = reinterpret_cast<Batch*>(shared.numbers);  // of 125 taps at most: they have room there
  const int thread = static_cast<int>(threadIdx.x), taps = call.rulebook.volume;
  const int tap = thread;  // no more taps than threads: 125 and 128
  if (tap < taps) {
    const DevicePairs pairs = call.rulebook.pairs(tap, counts.outputs);
    Batch all{tap, block_rows, -1, first_row};
    if (pairs.in != nullptr) {
      const int* const begins = call.begins + static_cast<long long>(tap) * (call.blocks + 1) + block;
      // Sorted if the lists are, and at most as many as outputs.
      const int first = min(max(begins[0], 0), pairs.count), last = min(max(begins[1], first), pairs.count);
      all.rows = min(last - first, block_rows);
      all.in = static_cast<int>(pairs.in - call.rulebook.values) + first;
      all.out = static_cast<int>(pairs.out - call.rulebook.values) + first;
    }
    of_tap[tap] = all;
  }
  __syncthreads();
  int count = 0, before = 0;
#pragma unroll 4
  for (int other = 0; other < taps; ++other) {
    const int batches = (of_tap[other].rows + batch_rows - 1) / batch_rows;
    count += batches;
    before += other < tap ? batches : 0;
  }
  if (tap < taps) {
    Batch part = of_tap[tap];
    for (int left = part.rows; left > 0; left -= batch_rows) {
      part.rows = min(batch_rows, left);
      shared.batches[before++] = part;
      part.in += part.in < 0 ? 0 : batch_rows;
      part.out += batch_rows;
    }
  }
  __syncthreads();
  return count;
}

/// The loads of one block into shared memory.
template <int columns>
class GatheredLoader {
  static constexpr int threads = block_threads(columns), unit_elems = unit_bytes / static_cast<int>(sizeof(float));
  /// Taps adjacent in x read nearly the same rows. Not measured.
  static constexpr bool rows_in_l1 = true;

 public:
  __device__ GatheredLoader(const GatheredCall& call, const GatheredShared<columns>& shared,
                            DeviceRulebook::Counts counts)
      : call_(call), shared_(shared), counts_(counts) {}

  /// 16-byte groups in unit `unit` of a pair.
  __device__ static int groups(const GatheredCall& call, int unit) {
    constexpr int elems = group_bytes / static_cast<int>(sizeof(float)), most = unit_elems / elems;
    return min(most, (call.channels - unit * unit_elems + elems - 1) / elems);
  }

  __device__ int* inputs_of(int batch) const {
    return shared_.numbers + (batch & call_.numbers_mask) * (2 * batch_rows);
  }
  /// Output numbers from the rulebook.
  __device__ int* outputs_of(int batch) const { return inputs_of(batch) + batch_rows; }

  /// Starts loading a batch's site numbers.
  __device__ void load_numbers(int number) const {
    const Batch batch = shared_.batches[number];
    int *const in = inputs_of(number), *const out = outputs_of(number);
    const auto* const book = reinterpret_cast<const float*>(call_.rulebook.values);
    for (int i = static_cast<int>(threadIdx.x); i < batch.rows; i += threads) {
      if (batch.in < 0) {
        in[i] = out[i] = batch.out + i;
      } else {
        copy_async<1>(reinterpret_cast<float*>(in + i), book + batch.in + i, true);
        copy_async<1>(reinterpret_cast<float*>(out + i), book + batch.out + i, true);
      }
    }
  }

  /// Starts loading units `unit` ... unit + count - 1 of a batch, rows of x (whose numbers are loaded) and filters, to
  /// positions `place` and up of slot `slot`.
  __device__ void load_units(int number, int unit, int count, int slot, int place, int tile_n) const {
    using Shared = GatheredShared<columns>;
    const Batch batch = shared_.batches[number];
    char* const stage = shared_.stages + slot * shared_.stage_bytes();
    constexpr int of_group = group_bytes;
    const int there = (call_.channels - unit * unit_elems) * static_cast<int>(sizeof(float));  // of a row, from here on
    const int bytes = min(count * unit_bytes, (there + of_group - 1) / of_group * of_group);
    load_rows(inputs_of(number), batch.rows, unit, there, bytes, stage + place * Shared::a_bytes);
    const long long from_unit =
        (static_cast<long long>(tile_n) * call_.rulebook.volume + batch.tap) * call_.units + unit;
    const char* const from = call_.w + from_unit * Shared::b_bytes;
    char* const b = stage + shared_.units * Shared::a_bytes + place * Shared::b_bytes;
#pragma unroll 4
    for (int at = static_cast<int>(threadIdx.x) * 16; at < bytes * columns; at += threads * 16)
      copy_async_16(b + at, from + at, true);
  }

 private:
  /// Loads `bytes` per row, of which x has the first `there`: zeros behind.
  __device__ void load_rows(const int* inputs, int rows, int unit, int there, int bytes, char* a) const {
    const char* const x = static_cast<const char*>(call_.x) + unit * unit_bytes;
    const long long pitch = static_cast<long long>(call_.channels) * static_cast<int>(sizeof(float));
    const auto row_at = [&](int row, bool& exists) {
      const int in = inputs[row];
      exists = static_cast<unsigned>(in) < static_cast<unsigned>(counts_.inputs);
      if (!exists) report(call_.fault);
      return exists ? in * pitch : 0;
    };
    const auto place = [&](int row, int chunk) {
      return a + (chunk >> 2) * GatheredShared<columns>::a_bytes + stage_offset(row, chunk & 3);
    };
    // log2 of the threads per row: one per 16-byte chunk.
    const int chunks_log = bytes > 128 ? 4 : bytes > 64 ? 3 : bytes > 32 ? 2 : bytes > 16 ? 1 : 0;
    if (call_.access == 16) {
#pragma unroll 2
      for (int item = static_cast<int>(threadIdx.x); item < rows << chunks_log; item += threads) {
        const int row = item >> chunks_log, chunk = item & ((1 << chunks_log) - 1);
        bool exists;
        const long long at = row_at(row, exists);
        exists = exists && chunk * 16 < there;
        if (chunk * 16 < bytes)
          copy_async<4, rows_in_l1>(reinterpret_cast<float*>(place(row, chunk)),
                                    reinterpret_cast<const float*>(exists ? x + at + chunk * 16 : call_.w), exists);
      }
    } else {
      const int shift = chunks_log + 2;
      for (int item = static_cast<int>(threadIdx.x); item < rows << shift; item += threads) {
        const int row = item >> shift, word = item & ((1 << shift) - 1);
        bool exists;
        const long long at = row_at(row, exists);
        exists = exists && word * 4 < there;
        if (word * 4 < bytes)
          copy_async<1>(reinterpret_cast<float*>(place(row, word / 4) + word % 4 * 4),
                        reinterpret_cast<const float*>(exists ? x + at + word * 4 : call_.w), exists);
      }
    }
  }

  const GatheredCall& call_;
  const GatheredShared<columns>& shared_;
  const DeviceRulebook::Counts counts_;
};

/// Stores the partial sums of one of `split_k` splits of block and tile `part`. Returns true in the last split to end,
/// which then has the sum of all, added in slice order.
template <int columns>
__device__ inline bool reduce_split_k(const GatheredCall& call, float* acc, int part, int split, int split_k,
                                      int rows_a_block, int rows) {
  constexpr int threads = block_threads(columns);
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x), of_split = rows_a_block * columns / 4;
  auto* const mine = reinterpret_cast<float4*>(acc);
  float4* const parts = call.parts + static_cast<long long>(part) * split_k * of_split;
  for (int i = thread; i < rows * columns / 4; i += threads)
    __stcg(parts + static_cast<long long>(split) * of_split + i, mine[i]);
  __threadfence();
  __syncthreads();
  if (thread == 0) last = atomicAdd(call.done + part, 1) == split_k - 1;
  __syncthreads();
  if (!last) return false;
  __threadfence();
#pragma unroll 1
  for (int i = thread; i < rows * columns / 4; i += threads) {
    float4 read[max_split_k];
#pragma unroll
    for (int s = 0; s < max_split_k; ++s)
      if (s < split_k) read[s] = __ldcg(parts + static_cast<long long>(s) * of_split + i);
    float4 sum = read[0];
#pragma unroll
    for (int s = 1; s < max_split_k; ++s)
      if (s < split_k) {
        sum.x += read[s].x;
        sum.y += read[s].y;
        sum.z += read[s].z;
        sum.w += read[s].w;
      }
    mine[i] = sum;
  }
  __syncthreads();
  return true;
}

/// Grid: x the blocks of outputs times splits, y the tiles of filters.
template <typename Tile, int columns, int resident>
__global__ void __launch_bounds__(block_threads(columns), resident)
    gathered_kernel(const __grid_constant__ GatheredCall call) {
  using Loader = GatheredLoader<columns>;
  constexpr int threads = block_threads(columns);
  extern __shared__ float4 memory[];
  wait_for_previous();
  let_next_start();

  const int thread = static_cast<int>(threadIdx.x);
  const int tile_n = static_cast<int>(blockIdx.y), tiles_n = static_cast<int>(gridDim.y), first_k = tile_n * columns;
  const GatheredShared<columns> shared(reinterpret_cast<char*>(memory), call);
  const auto counts = call.rulebook.counts();
  const int rows_a_block = call.plan.rows_of(counts.outputs);
  const int split_k = call.plan.split_k_of(counts.outputs, call.rulebook.volume);
  const int block = static_cast<int>(blockIdx.x) / split_k, split = static_cast<int>(blockIdx.x) % split_k;
  const int first_row = block * rows_a_block;
  const int computed = (counts.outputs + rows_a_block - 1) / rows_a_block * rows_a_block;
  clear_share<columns>(call, computed, first_k);
  if (first_row >= counts.outputs) return;
  const int there = min(rows_a_block, call.rulebook.most_outputs - first_row);
  const int block_rows = min(rows_a_block, counts.outputs - first_row);

  const Loader loader(call, shared, counts);
  const int all = list_batches(call, shared, counts, block, first_row, block_rows);
  const int end = all * (split + 1) / split_k;
  for (int i = thread; i < block_rows * columns / 4; i += threads)
    reinterpret_cast<float4*>(shared.acc)[i] = float4{0, 0, 0, 0};

  int batch = all * split / split_k, unit = 0, slot = 0;
  for (int i = batch; i < min(batch + call.lead, end); ++i) loader.load_numbers(i);
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();

  int loading = batch, loading_unit = 0, load_slot = 0;
  // One commit group per step, empty at the end, so that counting groups counts steps.
  const auto load_next = [&] {
#pragma unroll 1
    for (int place = 0; place < shared.units && loading < end;) {
      if (loading_unit == 0 && loading + call.lead < end) loader.load_numbers(loading + call.lead);
      const int count = min(shared.units - place, call.units - loading_unit);
      loader.load_units(loading, loading_unit, count, load_slot, place, tile_n);
      place += count;
      loading_unit += count;
      if (loading_unit == call.units) {
        loading_unit = 0;
        ++loading;
      }
    }
    load_slot = load_slot == call.plan.ahead ? 0 : load_slot + 1;
    commit_copies();
  };
#pragma unroll 1
  for (int i = 0; i < call.plan.ahead; ++i) load_next();

  Tile tile;
#pragma unroll 1
  while (batch < end) {
    wait_for_copies<most_ahead - 1>(call.plan.ahead - 1);
    // Also ensures that the previous step is finished, whose slot is filled next, and so are its batches' accumulators.
    __syncthreads();
    load_next();
    const char* a = shared.stages + slot * shared.stage_bytes();
    const char* b = a + shared.units * shared.a_bytes;
    slot = slot == call.plan.ahead ? 0 : slot + 1;
    bool added = false;
#pragma unroll 1
    for (int place = 0; place < shared.units && batch < end; ++place, a += shared.a_bytes, b += shared.b_bytes) {
      if (unit == 0) tile.clear();
      const int rows = shared.batches[batch].rows;
      tile.multiply(a, b, rows, Loader::groups(call, unit));
      if (++unit < call.units) continue;
      unit = 0;
      // The previous batch may have added to the same output in another warp.
      if (added) __syncthreads();
      added = true;
      tile.add_to(shared.acc, loader.outputs_of(batch), rows, {first_row, block_rows, call.fault});
      ++batch;
    }
  }
  __syncthreads();
  if (split_k > 1 &&
      !reduce_split_k<columns>(call, shared.acc, block * tiles_n + tile_n, split, split_k, rows_a_block, block_rows))
    return;
  store_rows<columns>(call, shared.acc, first_row, there, block_rows, first_k);
}

}  // namespace lenslet::cuda
