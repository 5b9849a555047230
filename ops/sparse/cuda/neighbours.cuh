#pragma once
// What neighbour_mma and neighbour_tiles share: a block's table of neighbours, and how its outputs are stored.
//
// A block of outputs makes a table of them in shared memory: for each tap, the row of x that meets the output there, or
// -1, and for each warp's tile the taps that some output of it has. It is made of the rulebook's lists, which are in
// order: a bisection, 16 ways, finds where the block's pairs of each tap begin and end. After that no warp waits for
// another: each walks the taps that its own tile has, in ascending order.

#include "base/cuda/launch.h"
#include "ops/conv/cuda/copy_async.cuh"
#include "ops/conv/cuda/half_mma.cuh"
#include "ops/conv/cuda/stored.cuh"
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
  int* fault = nullptr;
  int channels, filters;
  int chunks;        ///< steps of a tap
  bool aligned;      ///< a lane's share of a row of x can be read at once
  bool store_fours;  ///< four numbers of y at a time are aligned

  NeighbourCall(const SparseConvProblem& p, std::int64_t length, const NeighbourPlan& cut, SparseArithmetic arithmetic)
      : rulebook(p, length),
        activation(p.activation),
        plan(cut),
        channels(static_cast<int>(p.channels)),
        filters(static_cast<int>(p.filters)),
        chunks(static_cast<int>(cut.chunks(cuda::row_bytes(p, arithmetic)))) {}
};

/// Finishes `width` sums of an output and stores them.
template <typename T, int width>
__device__ inline void finish(const NeighbourCall& call, float (&value)[width], long long at, int k) {
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

/// The same of four neighbouring filters from `k` on, as far as they exist, of output `row`.
template <typename T>
__device__ inline void finish_four(const NeighbourCall& call, float (&value)[4], int row, int k) {
  const long long at = static_cast<long long>(row) * call.filters + k;
  if (call.store_fours) {
    if (k < call.filters) finish<T>(call, value, at, k);
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    float one[1] = {value[e]};
    if (k + e < call.filters) finish<T>(call, one, at + e, k + e);
  }
}

/// Zeros in this block's share of the rows from `first` on: those that no block computes.
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
  char* filters;  ///< [1 or 2 buffers][columns / width][steps of a stage]
  char* rows;     ///< of each warp: neighbour_tiles' rows of x
  int* table;     ///< [taps][rows]
  unsigned* has;  ///< [tiles][4]: bits of the taps that a tile has
  int* ends;      ///< [taps][2]: where the block's pairs begin and end

  __device__ NeighbourShared(char* memory, const NeighbourCall& call) {
    filters = memory;
    rows = filters + call.plan.filter_bytes(call.rulebook.volume * call.chunks);
    table = reinterpret_cast<int*>(rows + call.plan.row_bytes());
    has = reinterpret_cast<unsigned*>(table + call.rulebook.volume * call.plan.rows);
    ends = reinterpret_cast<int*>(has + call.plan.rows / call.plan.tile_rows() * 4);
  }
};

/// The outputs of a block.
struct BlockOutputs {
  int first, count;  ///< those that there are
  int rows;          ///< of its table
};

/// For each of `count` wanted numbers of outputs, the first pair of its list whose output is not below it: found by 16
/// lanes each, several at a time, because each look waits for memory. Of lists that are out of order it is any place,
/// but the same whoever asks.
template <typename List, typename Put>
__device__ inline void bisect(int searches, const List& list, const Put& put) {
  constexpr int lanes = 16, at_once = 2;
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
      int found[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        const int step = (to[j] - from[j]) / lanes + 1, at = from[j] + (lane + 1) * step - 1;
        left = left || from[j] < to[j];
        found[j] = at < to[j] ? __ldcg(values[j] + at) : 0x7fffffff;
      }
      if (!__any_sync(0xffffffffU, left)) break;
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

/// Fills a block's table. What it writes is there when it returns. Every pair of a list is looked at by the block that
/// its place belongs to, so that lists which are out of order are found out by one of them.
__device__ inline void make_table(const NeighbourCall& call, const NeighbourShared& shared,
                                  DeviceRulebook::Counts counts, const BlockOutputs& block) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int taps = call.rulebook.volume, tile_rows = call.plan.tile_rows(), tiles = block.rows / tile_rows;
  const int last = block.first + block.count;
  bisect(
      2 * taps,
      [&](int search, const int*& values, int& count, int& wanted) {
        const DevicePairs pairs = call.rulebook.pairs(search / 2, counts.outputs);
        if (pairs.out == nullptr) return;
        values = pairs.out;
        count = pairs.count;
        wanted = search % 2 == 0 ? block.first : last;
      },
      [&](int search, int place) { shared.ends[search] = place; });
  const int centre = call.rulebook.submanifold ? taps / 2 : -1;
  for (int i = thread; i < taps * block.rows; i += threads) {
    const int tap = i / block.rows, row = i - tap * block.rows;
    shared.table[i] = tap == centre && row < block.count ? block.first + row : -1;
  }
  for (int i = thread; i < tiles * 4; i += threads)
    shared.has[i] = i % 4 == centre / 32 && centre >= 0 && i / 4 * tile_rows < block.count ? 1U << centre % 32 : 0;
  __syncthreads();
  const int warps = threads / 32, lane = thread % 32;
  bool wrong = !counts.valid;
  for (int tap = thread / 32; tap < taps; tap += warps) {
    const DevicePairs pairs = call.rulebook.pairs(tap, counts.outputs);
    wrong = wrong || !pairs.valid;
    if (pairs.out == nullptr) continue;
    const int begin = shared.ends[2 * tap], end = shared.ends[2 * tap + 1];
    if (end < begin || (block.first == 0 && begin != 0) || (last == counts.outputs && end != pairs.count)) wrong = true;
    int* const to = shared.table + tap * block.rows;
#pragma unroll 4
    for (int i = begin + lane; i < end; i += 32) {
      const int out = __ldcg(pairs.out + i), in = __ldcg(pairs.in + i);
      const int before = i > begin ? __ldcg(pairs.out + i - 1) : block.first - 1;
      if (before >= out || out < block.first || out >= last || in < 0 || in >= counts.inputs) {
        wrong = true;
        continue;
      }
      to[out - block.first] = in;
      const int tile = (out - block.first) / tile_rows;
      if (i == begin || lane == 0 || (before - block.first) / tile_rows != tile)
        atomicOr(shared.has + tile * 4 + tap / 32, 1U << tap % 32);
    }
  }
  if (wrong) report(call.fault);
  __syncthreads();
}

/// The block's filters: stages of some steps, of which the next is on its way while one is multiplied, again and again for
/// as many rounds of tiles as the block has; or all steps, once. Each warp keeps its own count of where it is, and all go
/// through as many stages, because between two of them they wait for each other.
template <int width>
class FilterStages {
 public:
  /// Ahead of wait_for_previous().
  __device__ FilterStages(const NeighbourCall& call, char* memory)
      : call_(call),
        memory_(memory),
        step_bytes_(call.plan.step_bytes() * width),
        tiles_n_(call.plan.columns / width),
        steps_(call.rulebook.volume * call.chunks),
        stages_(call.plan.stages(steps_)) {
    start(0);
    if (stages_ > 1) start(1);
  }
  /// Of this thread's copies those of stage 0: a barrier is to follow.
  __device__ void wait_for_first() const {
    if (stages_ > 1)
      wait_for_copies<1>();
    else
      wait_for_copies<0>();
  }
  __device__ void set_rounds(int rounds) { last_ = stages_ > 1 ? rounds * stages_ - 1 : 0; }

  /// By the whole warp: the filters of a step, which does not lie before the stage that the warp is in.
  __device__ const char* of(int step, int tile_n) {
    while (step >= first_ + call_.plan.stage) advance();
    return memory_ + (((at_ & 1) * tiles_n_ + tile_n) * call_.plan.stage + step - first_) * step_bytes_;
  }
  /// To the first step of the next round, if there is one.
  __device__ void end_round() {
    if (stages_ == 1) return;
    do
      if (at_ < last_)
        advance();
      else
        return;
    while (first_ != 0);
  }

 private:
  __device__ void advance() {
    wait_for_copies<0>();
    __syncthreads();
    ++at_;
    first_ = first_ + call_.plan.stage >= steps_ ? 0 : first_ + call_.plan.stage;
    if (at_ < last_) start(at_ + 1);
  }
  __device__ void start(int number) const {
    const int first = number % stages_ * call_.plan.stage;
    const int bytes = min(call_.plan.stage, steps_ - first) * step_bytes_;
    for (int n = 0; n < tiles_n_; ++n) {
      char* const to = memory_ + ((number & 1) * tiles_n_ + n) * call_.plan.stage * step_bytes_;
      const char* const from =
          call_.w + ((static_cast<long long>(blockIdx.y) * tiles_n_ + n) * steps_ + first) * step_bytes_;
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += static_cast<int>(blockDim.x) * 16)
        copy_async_16(to + i, from + i, true);
    }
    commit_copies();
  }

  const NeighbourCall& call_;
  char* const memory_;
  const int step_bytes_, tiles_n_, steps_, stages_;
  int at_ = 0, first_ = 0, last_ = 0;
};

/// The taps that a tile has, in ascending order, each in as many steps as its channels have.
class Steps {
 public:
  __device__ Steps(const unsigned* has, int chunks) : has_(has), left_(has[0]), chunk_(chunks), chunks_(chunks) {}

  /// The next one, or no: then `tap` is -1.
  __device__ bool next() {
    if (++chunk_ < chunks_) return true;
    while (left_ == 0) {
      if (++word_ >= 4) {
        tap = -1;
        chunk_ = chunks_;
        word_ = 3;
        return false;
      }
      left_ = has_[word_];
    }
    tap = word_ * 32 + __ffs(static_cast<int>(left_)) - 1;
    left_ &= left_ - 1;
    chunk_ = 0;
    return true;
  }
  __device__ int chunk() const { return chunk_; }
  int tap = -1;

 private:
  const unsigned* has_;
  unsigned left_;
  int word_ = 0, chunk_, chunks_;
};

}  // namespace lenslet::cuda
