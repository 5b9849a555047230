#pragma once
// SparseConv on tensor cores (mma.sync), independent per warp: 16 or 32 outputs and 16 or 32 filters, accumulators in
// registers. A lane loads its share of a row of x directly as an operand of the instruction, several taps ahead.

#include "base/cuda/half_mma.cuh"
#include "base/cuda/mma.cuh"
#include "ops/sparse/cuda/neighbours.cuh"

namespace lenslet::cuda {

/// One step's rows of x as a lane has them: of each 16 rows, rows g and g + 8, with g = lane / 4.
template <typename T, int pieces, int terms, bool aligned>
struct NeighbourRows {
  static constexpr int words = 2 * terms, lane_words = words < 4 ? words : 4;
  std::uint32_t at[pieces][2][words];
  int step;  ///< of all taps'; < 0: there is none

  /// Each lane of four takes `lane_words` words per 64 bytes of a row (per 32 if there are no more).
  __device__ void load(const NeighbourCall& call, int chunk, const int* of_tap, int lane) {
    const long long pitch = static_cast<long long>(call.channels) * static_cast<int>(sizeof(T));
    const int first = chunk * 32 * terms + lane % 4 * (4 * lane_words);
#pragma unroll
    for (int p = 0; p < pieces; ++p)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int in = of_tap[p * 16 + half * 8 + lane / 4];
        const char* const row = static_cast<const char*>(call.x) + in * pitch;
#pragma unroll
        for (int unit = 0; unit < words / lane_words; ++unit) {
          const int byte = first + unit * 64;
          std::uint32_t(&to)[lane_words] = *reinterpret_cast<std::uint32_t(*)[lane_words]>(&at[p][half][unit * 4]);
          if constexpr (aligned) {
            load_or_zero(to, row + byte, in >= 0 && byte < pitch);
          } else {
#pragma unroll
            for (int i = 0; i < lane_words; ++i)
              to[i] = load_word(row, in >= 0 ? static_cast<int>(pitch) : 0, byte + 4 * i);
          }
        }
      }
  }

 private:
  /// Four bytes of a row, element by element, zero from `end` on.
  __device__ static std::uint32_t load_word(const char* row, int end, int byte) {
    if constexpr (sizeof(T) == 2) {
      const std::uint32_t low = byte < end ? *reinterpret_cast<const unsigned short*>(row + byte) : 0;
      const std::uint32_t high = byte + 2 < end ? *reinterpret_cast<const unsigned short*>(row + byte + 2) : 0;
      return low | high << 16;
    } else {
      return byte < end ? *reinterpret_cast<const std::uint32_t*>(row + byte) : 0;
    }
  }
};

/// Also the limit per multiprocessor, whose registers the threads share.
constexpr int most_threads(int pieces, int terms) { return pieces == 1 ? (terms == 1 ? 768 : 640) : 512; }

/// Grid: x the blocks of outputs, y the tiles of `columns` filters. `aligned`: a lane's share of a row of x is one
/// load.
template <typename T, int width, int pieces, int terms, int ahead, bool aligned>
__global__ void __launch_bounds__(most_threads(pieces, terms), 1)
    neighbour_mma(const __grid_constant__ NeighbourCall call) {
  extern __shared__ float4 memory[];
  const NeighbourShared shared(reinterpret_cast<char*>(memory), call);
  FilterStages<width> filters(call, shared.filters);
  constexpr int tile_rows = 16 * pieces;
  const BlockOutputs block = begin_block<T, tile_rows>(call, shared, filters);
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll 1
  for (int first = 0; first < block.items; first += warps, filters.end_round()) {
    const int item = first + static_cast<int>(threadIdx.x) / 32;
    if (item >= block.items) continue;
    const int tile = item / block.tiles_n, tile_n = item - tile * block.tiles_n;
    const int* const table = shared.table + tile * tile_rows;
    Steps steps(shared.has + tile * 4, shared.taps + threadIdx.x / 32 * 128, call.chunks);
    NeighbourRows<T, pieces, terms, aligned> rows[ahead];
    const auto load = [&](NeighbourRows<T, pieces, terms, aligned>& to) {
      to.step = -1;
      if (!steps.there()) return;
      to.step = steps.tap() * call.chunks + steps.chunk();
      to.load(call, steps.chunk(), table + steps.tap() * block.rows, lane);
      steps.next();
    };
#pragma unroll
    for (int i = 0; i < ahead; ++i) load(rows[i]);
    float acc[pieces][width / 8][4] = {};
    for (bool more = true; more;) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        if (rows[i].step < 0) {
          more = false;
          break;
        }
        const char* const b = filters.of(rows[i].step, tile_n) + lane * 16;
#pragma unroll
        for (int term = 0; term < terms; ++term) {
          std::uint32_t a[pieces][4];
#pragma unroll
          for (int p = 0; p < pieces; ++p) {
            a[p][0] = rows[i].at[p][0][2 * term], a[p][1] = rows[i].at[p][1][2 * term];
            a[p][2] = rows[i].at[p][0][2 * term + 1], a[p][3] = rows[i].at[p][1][2 * term + 1];
            round_operand<T>(a[p]);
          }
#pragma unroll
          for (int j = 0; j < width / 16; ++j) {
            const uint4 right = *reinterpret_cast<const uint4*>(b + (term * (width / 16) + j) * 512);
#pragma unroll
            for (int p = 0; p < pieces; ++p) {
              mma<T>(acc[p][2 * j], a[p], right.x, right.y);
              mma<T>(acc[p][2 * j + 1], a[p], right.z, right.w);
            }
          }
        }
        load(rows[i]);
      }
    }
    const int first_k = (static_cast<int>(blockIdx.y) * block.tiles_n + tile_n) * width + lane % 4 * (width / 4);
#pragma unroll
    for (int p = 0; p < pieces; ++p)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = tile * tile_rows + p * 16 + half * 8 + lane / 4;
        if (row >= block.count) continue;
#pragma unroll
        for (int four = 0; four < width / 16; ++four) {
          float value[4] = {acc[p][2 * four][2 * half], acc[p][2 * four][2 * half + 1], acc[p][2 * four + 1][2 * half],
                            acc[p][2 * four + 1][2 * half + 1]};
          finish_four<T>(call, value, block.first + row, first_k + 4 * four);
        }
      }
  }
}

}  // namespace lenslet::cuda
