#pragma once
// SparseConv in IEEE float32, independent per warp: accumulators stay in registers. A tap's rows of x, 64 bytes each,
// go through shared memory, loaded while the previous ones are multiplied. Pieces of 8 outputs are skipped if the tap
// has no input for them.

#include "ops/sparse/cuda/gathered_stage.cuh"
#include "ops/sparse/cuda/neighbours.cuh"

namespace lenslet::cuda {

/// A warp's products. The lane layout lets half a warp's 16-byte reads share one access.
template <int pieces, bool aligned>
class FmaRows {
 public:
  static constexpr int width = 16, piece_rows = 8, rows = pieces * piece_rows, loads = rows / 8;
  static_assert(rows <= 32);

  __device__ FmaRows(const NeighbourCall& call, char* memory)
      : call_(call),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x) % 32),
        row_(lane_ >> 1 & 7),
        four_((lane_ & 1) | lane_ >> 4 << 1) {}

  /// Rows of a step being loaded.
  struct Loaded {
    std::uint32_t at[loads][4];
    int tap, chunk;  ///< tap < 0: there is none
  };

  /// Starts loading a step's rows: entries of `of_tap` other than -1.
  __device__ void load(Loaded& to, const int* of_tap, int chunk) const {
    const int floats = call_.channels, first = chunk * 16 + lane_ % 4 * 4;
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const int in = of_tap[lane_ / 4 + i * 8];
      const float* const from = static_cast<const float*>(call_.x) + static_cast<long long>(in) * floats + first;
      if constexpr (aligned) {
        load_or_zero(to.at[i], from, in >= 0 && first < floats);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) to.at[i][e] = in >= 0 && first + e < floats ? __float_as_uint(from[e]) : 0;
      }
    }
  }
  /// Stores the loaded rows to shared memory.
  __device__ void put(const Loaded& from) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < loads; ++i)
      *reinterpret_cast<uint4*>(memory_ + stage_offset(lane_ / 4 + i * 8, lane_ % 4)) =
          make_uint4(from.at[i][0], from.at[i][1], from.at[i][2], from.at[i][3]);
    __syncwarp();
  }
  /// Bit mask of the pieces that a tap has inputs for.
  __device__ unsigned met(const int* of_tap) const {
    const unsigned of_rows = __ballot_sync(0xffffffffU, lane_ < rows && of_tap[lane_ % rows] >= 0);
    unsigned bits = 0;
#pragma unroll
    for (int p = 0; p < pieces; ++p)
      if ((of_rows >> p * piece_rows & ((1U << piece_rows) - 1)) != 0) bits |= 1U << p;
    return bits;
  }
  __device__ void clear() {
#pragma unroll
    for (auto& piece : acc_)
#pragma unroll
      for (float& sum : piece) sum = 0;
  }
  /// Multiplies `groups` times four channels of those pieces.
  __device__ void multiply(const char* filters, int groups, unsigned met) {
    const float* right = reinterpret_cast<const float*>(filters) + four_ * 4;
#pragma unroll 1
    for (int group = 0; group < groups; ++group, right += 4 * width) {
      float b[4][4];
#pragma unroll
      for (int k = 0; k < 4; ++k) read_stored(b[k], right + k * width);
#pragma unroll
      for (int p = 0; p < pieces; ++p) {
        if ((met >> p & 1) == 0) continue;
        float a[4];
        read_stored(a, reinterpret_cast<const float*>(memory_ + stage_offset(p * piece_rows + row_, group)));
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int e = 0; e < 4; ++e) acc_[p][e] = fmaf(a[k], b[k][e], acc_[p][e]);
      }
    }
  }
  /// `first`: the tile's first output; it has `count`.
  __device__ void store(int first, int count, int first_k) {
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      const int row = p * piece_rows + row_;
      if (row < count) finish_four<float>(call_, acc_[p], first + row, first_k + four_ * 4);
    }
  }

 private:
  const NeighbourCall& call_;
  char* const memory_;
  const int lane_, row_, four_;
  float acc_[pieces][4];
};

/// Also the limit per multiprocessor, whose registers the threads share.
inline constexpr int most_fma_threads = 640;

/// Grid: x the blocks of outputs, y the tiles of 16 filters.
template <int pieces, int ahead, bool aligned>
__global__ void __launch_bounds__(most_fma_threads, 1) neighbour_fma(const __grid_constant__ NeighbourCall call) {
  using Rows = FmaRows<pieces, aligned>;
  extern __shared__ float4 memory[];
  const NeighbourShared shared(reinterpret_cast<char*>(memory), call);
  FilterStages<Rows::width> filters(call, shared.filters);
  const BlockOutputs block = begin_block<float, Rows::rows>(call, shared, filters);
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  Rows rows(call, shared.rows + warp * (Rows::rows * 64));
#pragma unroll 1
  for (int first = 0; first < block.items; first += warps, filters.end_round()) {
    const int item = first + warp;
    if (item >= block.items) continue;
    const int tile = item / block.tiles_n, tile_n = item - tile * block.tiles_n;
    const int* const table = shared.table + tile * Rows::rows;
    Steps steps(shared.has + tile * 4, shared.taps + warp * 128, call.chunks);
    rows.clear();
    typename Rows::Loaded loaded[ahead];
    const auto load = [&](typename Rows::Loaded& to) {
      to.tap = -1;
      if (!steps.there()) return;
      to.tap = steps.tap();
      to.chunk = steps.chunk();
      rows.load(to, table + to.tap * block.rows, to.chunk);
      steps.next();
    };
#pragma unroll
    for (int i = 0; i < ahead; ++i) load(loaded[i]);
    for (bool more = true; more;) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const int tap = loaded[i].tap, chunk = loaded[i].chunk;
        if (tap < 0) {
          more = false;
          break;
        }
        rows.put(loaded[i]);
        load(loaded[i]);
        rows.multiply(filters.of(tap * call.chunks + chunk, tile_n), min(4, (call.channels - chunk * 16 + 3) / 4),
                      rows.met(table + tap * block.rows));
      }
    }
    rows.store(block.first + tile * Rows::rows, block.count - tile * Rows::rows,
               (static_cast<int>(blockIdx.y) * block.tiles_n + tile_n) * Rows::width);
  }
}

}  // namespace lenslet::cuda
