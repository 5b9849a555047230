#pragma once
// The kernel of gathered_tiles and gathered_mma. A block keeps the sums of some outputs in shared memory and goes
// through the taps: the pairs of a tap that lead to its outputs lie next to one another in the rulebook, so that their
// rows of x are gathered into a full tile, multiplied with the tap's filters and added to the sums where they belong.
// Nothing is multiplied that is not there, and no neighbours are looked up. Each output meets its taps in their order
// and belongs to one block, so that bits repeat.
//
// While a step of a batch is multiplied, the next two are on their way (cp.async), and the numbers of the batches
// behind those.

#include "base/cuda/launch.h"
#include "ops/conv/cuda/copy_async.cuh"
#include "ops/conv/cuda/half_mma.cuh"
#include "ops/conv/cuda/stored.cuh"
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
  int* fault = nullptr;
  int channels, filters, steps, blocks;
  int access;        ///< bytes by which rows of x are read: 16, 4 or 2
  bool store_fours;  ///< four numbers of y at a time are aligned

  GatheredCall(const SparseConvProblem& p, std::int64_t length, const GatheredPlan& cut, SparseArithmetic arithmetic)
      : rulebook(p, length),
        activation(p.activation),
        plan(cut),
        channels(static_cast<int>(p.channels)),
        filters(static_cast<int>(p.filters)),
        steps(static_cast<int>(gathered_steps(p, arithmetic))),
        blocks(static_cast<int>(cut.blocks(p))) {}
};

/// Pairs of a tap that are multiplied together. In shared memory.
struct alignas(16) Batch {
  int tap, rows;
  int in, out;  ///< where in the rulebook their numbers begin; in < 0: each site with itself, from number `out` on
};

/// Finishes `width` sums of an output and stores them.
template <typename T, int width>
__device__ inline void finish(const GatheredCall& call, float (&value)[width], long long at, int k) {
  if (call.bias != nullptr)
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] += call.bias[k + e];
  if (call.residual != nullptr) {
    float added[width];
    read_stored(added, static_cast<const T*>(call.residual) + at);
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] += added[e];
  }
  if (call.activation.is_clamp()) {
    const Clamp clamp = call.activation.clamp();
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] = clamp(value[e]);
  } else if constexpr (sizeof(T) == 2) {
    call.activation.apply_for_halves(value);
  } else {
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] = call.activation(value[e]);
  }
  write_stored(static_cast<T*>(call.y) + at, value);
}

/// y of the block's rows, `there` in all, out of their sums; zeros from row `rows` on.
template <typename T, int columns, int width>
__device__ inline void store_rows(const GatheredCall& call, const float* sums, int first_row, int there, int rows,
                                  int first_k) {
  constexpr int of_row = columns / width;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < there * of_row; item += block_threads(columns)) {
    const int row = item / of_row, column = item % of_row * width, k = first_k + column;
    if (k >= call.filters) continue;
    const long long at = static_cast<long long>(first_row + row) * call.filters + k;
    float value[width] = {};
    if (row < rows) {
      const float* const from = sums + sums_offset<columns>(row, column / 4) + column % 4;
      read_stored(value, from);
      finish<T>(call, value, at, k);
    } else {
      write_stored(static_cast<T*>(call.y) + at, value);
    }
  }
}
template <typename T, int columns>
__device__ inline void store_rows(const GatheredCall& call, const float* sums, int first_row, int there, int rows,
                                  int first_k) {
  if (call.store_fours)
    store_rows<T, columns, 4>(call, sums, first_row, there, rows, first_k);
  else
    store_rows<T, columns, 1>(call, sums, first_row, there, rows, first_k);
}

/// Zeros in this block's share of the rows from `first` on: those that no block computes.
template <typename T, int columns>
__device__ inline void clear_share(const GatheredCall& call, int first, int first_k) {
  const int all = call.rulebook.most_outputs - first, blocks = static_cast<int>(gridDim.x);
  if (all <= 0) return;
  const int share = (all + blocks - 1) / blocks;
  const long long mine = first + static_cast<long long>(blockIdx.x) * share;
  const long long left = call.rulebook.most_outputs - mine;
  if (left > 0)
    store_rows<T, columns>(call, nullptr, static_cast<int>(mine),
                           static_cast<int>(min(left, static_cast<long long>(share))), 0, first_k);
}

/// A block's shared memory, in this order.
template <int columns>
struct GatheredShared {
  float* sums;   ///< [rows][columns], sums_offset()
  char* stages;  ///< of each step under way: rows of x, then filters
  int* numbers;  ///< of each batch: inputs, then rows of the block
  Batch* batches;
  int a_bytes;
  static constexpr int slots = steps_ahead + 1, number_slots = 2 * steps_ahead + 1;

  __device__ GatheredShared(char* memory, const GatheredPlan& plan) : a_bytes(plan.most_batch() * step_bytes) {
    sums = reinterpret_cast<float*>(memory);
    stages = memory + plan.rows * columns * static_cast<int>(sizeof(float));
    numbers = reinterpret_cast<int*>(stages + slots * stage_bytes());
    batches = reinterpret_cast<Batch*>(numbers + number_slots * 2 * plan.most_batch());
  }
  __device__ int stage_bytes() const { return a_bytes + columns * step_bytes; }
};

/// Lists a block's batches, tap by tap, and counts them. All threads; what it writes is there when it returns.
template <int columns>
__device__ inline int list_batches(const GatheredCall& call, const GatheredShared<columns>& shared,
                                   DeviceRulebook::Counts counts, int block, int first_row, int block_rows) {
  constexpr int threads = block_threads(columns);
  auto* const of_tap = reinterpret_cast<Batch*>(shared.numbers);  // of 125 taps at most: they have room there
  const int thread = static_cast<int>(threadIdx.x), taps = call.rulebook.volume, most = call.plan.most_batch();
  for (int tap = thread; tap < taps; tap += threads) {
    const DevicePairs pairs = call.rulebook.pairs(tap, counts.outputs);
    Batch all{tap, block_rows, -1, first_row};
    if (pairs.in != nullptr) {
      const int* const begins = call.begins + static_cast<long long>(tap) * (call.blocks + 1) + block;
      // Of lists in order they are in order, and no more than there are outputs.
      const int first = min(max(begins[0], 0), pairs.count), last = min(max(begins[1], first), pairs.count);
      all.rows = min(last - first, block_rows);
      all.in = static_cast<int>(pairs.in - call.rulebook.values) + first;
      all.out = static_cast<int>(pairs.out - call.rulebook.values) + first;
    }
    of_tap[tap] = all;
  }
  __syncthreads();
  int count = 0;
  for (int tap = 0; tap < taps; ++tap) {
    const int rows = of_tap[tap].rows;
    if (tap % threads == thread)
      for (int i = 0; i * most < rows; ++i) {
        Batch part = of_tap[tap];
        part.rows = min(most, rows - i * most);
        part.in += part.in < 0 ? 0 : i * most;
        part.out += i * most;
        shared.batches[count + i] = part;
      }
    count += (rows + most - 1) / most;
  }
  __syncthreads();
  return count;
}

/// Fills shared memory for one block.
template <typename T, SparseArithmetic arithmetic, int columns>
class GatheredLoader {
  static constexpr int threads = block_threads(columns), row_elems = step_bytes / static_cast<int>(sizeof(T));
  /// Taps that follow one another along x want nearly the same rows. Not measured.
  static constexpr bool rows_in_l1 = true;

 public:
  __device__ GatheredLoader(const GatheredCall& call, const GatheredShared<columns>& shared,
                            DeviceRulebook::Counts counts)
      : call_(call), shared_(shared), counts_(counts) {}

  /// Groups of terms in step `step`.
  __device__ static int groups(const GatheredCall& call, int step) {
    constexpr int elems = group_bytes(arithmetic) / static_cast<int>(sizeof(T)), most = row_elems / elems;
    return min(most, (call.channels - step * row_elems + elems - 1) / elems);
  }

  __device__ int* inputs_of(int batch) const {
    return shared_.numbers + batch % GatheredShared<columns>::number_slots * 2 * call_.plan.most_batch();
  }
  /// Numbers of outputs, as the rulebook has them.
  __device__ int* outputs_of(int batch) const { return inputs_of(batch) + call_.plan.most_batch(); }

  /// Starts the copies of a batch's numbers.
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

  /// Starts the copies of a step: rows of x, whose numbers are there, and filters, to slot `slot`.
  __device__ void load_step(int number, int step, int slot, int tile_n) const {
    const Batch batch = shared_.batches[number];
    char* const a = shared_.stages + slot * shared_.stage_bytes();
    const int groups = this->groups(call_, step);
    load_rows(inputs_of(number), batch.rows, step, groups, a);
    const long long stage = (static_cast<long long>(tile_n) * call_.rulebook.volume + batch.tap) * call_.steps + step;
    const char* const from = call_.w + stage * (columns * step_bytes);
    char* const b = a + shared_.a_bytes;
    for (int at = static_cast<int>(threadIdx.x) * 16; at < groups * columns * group_bytes(arithmetic);
         at += threads * 16)
      copy_async_16(b + at, from + at, true);
  }

 private:
  /// Channels of the step's groups that x does not have become zeros.
  __device__ void load_rows(const int* inputs, int rows, int step, int groups, char* a) const {
    const int bytes = groups * group_bytes(arithmetic);
    const int there = (call_.channels - step * row_elems) * static_cast<int>(sizeof(T));  // of a row, from here on
    const char* const x = static_cast<const char*>(call_.x) + step * step_bytes;
    const long long pitch = static_cast<long long>(call_.channels) * static_cast<int>(sizeof(T));
    const auto row_at = [&](int row, bool& exists) {
      const int in = inputs[row];
      exists = static_cast<unsigned>(in) < static_cast<unsigned>(counts_.inputs);
      if (!exists) report(call_.fault);
      return exists ? in * pitch : 0;
    };
    if (call_.access == 16) {
      const int shift = bytes > 32 ? 2 : bytes > 16 ? 1 : 0;
      for (int item = static_cast<int>(threadIdx.x); item < rows << shift; item += threads) {
        const int row = item >> shift, chunk = item & ((1 << shift) - 1);
        bool exists;
        const long long at = row_at(row, exists);
        exists = exists && chunk * 16 < there;
        if (chunk * 16 < bytes)
          copy_async<4, rows_in_l1>(reinterpret_cast<float*>(a + stage_offset(row, chunk)),
                                    reinterpret_cast<const float*>(exists ? x + at + chunk * 16 : call_.w), exists);
      }
    } else if (call_.access == 4) {
      const int shift = bytes > 32 ? 4 : bytes > 16 ? 3 : 2;
      for (int item = static_cast<int>(threadIdx.x); item < rows << shift; item += threads) {
        const int row = item >> shift, word = item & ((1 << shift) - 1);
        bool exists;
        const long long at = row_at(row, exists);
        exists = exists && word * 4 < there;
        if (word * 4 < bytes)
          copy_async<1>(reinterpret_cast<float*>(a + stage_offset(row, word / 4) + word % 4 * 4),
                        reinterpret_cast<const float*>(exists ? x + at + word * 4 : call_.w), exists);
      }
    } else if constexpr (sizeof(T) == 2) {
      const int shift = bytes > 32 ? 5 : 4;
      for (int item = static_cast<int>(threadIdx.x); item < rows << shift; item += threads) {
        const int row = item >> shift, half = item & ((1 << shift) - 1);
        bool exists;
        const long long at = row_at(row, exists);
        exists = exists && half * 2 < there;
        *reinterpret_cast<unsigned short*>(a + stage_offset(row, half / 8) + half % 8 * 2) =
            exists ? *reinterpret_cast<const unsigned short*>(x + at + half * 2) : 0;
      }
    }
  }

  const GatheredCall& call_;
  const GatheredShared<columns>& shared_;
  const DeviceRulebook::Counts counts_;
};

/// Grid: x the blocks of outputs, y the tiles of filters.
template <typename Tile, int columns, int resident>
__global__ void __launch_bounds__(block_threads(columns), resident)
    gathered_kernel(const __grid_constant__ GatheredCall call) {
  using T = typename Tile::Stored;
  using Loader = GatheredLoader<T, Tile::arithmetic, columns>;
  constexpr int threads = block_threads(columns);
  extern __shared__ float4 memory[];
  wait_for_previous();
  let_next_start();

  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int tile_n = static_cast<int>(blockIdx.y), first_k = tile_n * columns;
  const GatheredShared<columns> shared(reinterpret_cast<char*>(memory), call.plan);
  const auto counts = call.rulebook.counts();
  const int rows_a_block = call.plan.rows_of(counts.outputs), first_row = block * rows_a_block;
  const int computed = (counts.outputs + rows_a_block - 1) / rows_a_block * rows_a_block;
  clear_share<T, columns>(call, computed, first_k);
  if (first_row >= counts.outputs) return;
  const int there = min(rows_a_block, call.rulebook.most_outputs - first_row);
  const int block_rows = min(rows_a_block, counts.outputs - first_row);

  const Loader loader(call, shared, counts);
  const int batches = list_batches(call, shared, counts, block, first_row, block_rows);
  for (int i = thread; i < block_rows * columns / 4; i += threads)
    reinterpret_cast<float4*>(shared.sums)[i] = float4{0, 0, 0, 0};

  for (int i = 0; i < min(steps_ahead, batches); ++i) loader.load_numbers(i);
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();

  int loading = 0, loading_step = 0, load_slot = 0;
  // A group of copies each, empty behind the last step, so that waiting counts steps.
  const auto load_next = [&] {
    if (loading < batches) {
      if (loading_step == 0 && loading + steps_ahead < batches) loader.load_numbers(loading + steps_ahead);
      loader.load_step(loading, loading_step, load_slot, tile_n);
      if (++loading_step == call.steps) {
        loading_step = 0;
        ++loading;
      }
    }
    load_slot = load_slot + 1 == shared.slots ? 0 : load_slot + 1;
    commit_copies();
  };
#pragma unroll 1
  for (int i = 0; i < steps_ahead; ++i) load_next();

  Tile tile;
  int batch = 0, step = 0, slot = 0;
#pragma unroll 1
  while (batch < batches) {
    wait_for_copies<steps_ahead - 1>();
    // Also: everyone is done with the step before, whose slot is filled next, and with the sums of its batch.
    __syncthreads();
    load_next();
    if (step == 0) tile.clear();
    const char* const a = shared.stages + slot * shared.stage_bytes();
    const int rows = shared.batches[batch].rows;
    tile.multiply(a, a + shared.a_bytes, rows, Loader::groups(call, step));
    slot = slot + 1 == shared.slots ? 0 : slot + 1;
    if (++step < call.steps) continue;
    step = 0;
    tile.add_to(shared.sums, loader.outputs_of(batch), rows, {first_row, block_rows, call.fault});
    ++batch;
  }
  __syncthreads();
  store_rows<T, columns>(call, shared.sums, first_row, there, block_rows, first_k);
}

}  // namespace lenslet::cuda
