#pragma once
// A warp's products of a batch in IEEE float32. A lane has every eighth row and eight filters (four of 16): adjacent
// lanes read the same row and lanes two apart the same filters, so half a warp's 16-byte reads need one access.

#include "base/cuda/stored.cuh"
#include "ops/sparse/cuda/gathered_stage.cuh"

namespace lenslet::cuda {

template <int columns>
class FmaTile {
 public:
  using Place = WarpPlace<columns>;

  __device__ void clear() {
#pragma unroll
    for (auto& row : acc_)
#pragma unroll
      for (float& sum : row) sum = 0;
  }

  /// Adds the products of a unit: `groups` times four channels of the batch's `rows` rows at `a` and of the filters at
  /// `b`.
  __device__ void multiply(const char* a, const char* b, int rows, int groups) {
    const int count = place_.pieces(rows, 8);
    if (count == 0) return;
    with_count<pieces>(count, [&]<int n>() { multiply_pieces<n>(a, b, groups); });
  }

  /// Adds the accumulators to the block's. `outputs`: output numbers by row of the batch.
  __device__ void add_to(float* acc, const int* outputs, int rows, BlockRows block) const {
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      const int row = row_of(i);
      if (row >= rows) break;
      const int to = block.row_of(outputs[row]);
      if (to < 0) continue;
#pragma unroll
      for (int j = 0; j < fours; ++j) {
        auto* const at = reinterpret_cast<float4*>(acc + acc_offset<columns>(to, first_four() + 4 * j));
        float4 sum = *at;
        sum.x += acc_[i][4 * j];
        sum.y += acc_[i][4 * j + 1];
        sum.z += acc_[i][4 * j + 2];
        sum.w += acc_[i][4 * j + 3];
        *at = sum;
      }
    }
  }

 private:
  static constexpr int fours = Place::width / 16;  ///< a lane's filters come in fours, 16 apart
  static constexpr int pieces = batch_rows / (8 * Place::along_m);

  __device__ int row_of(int i) const { return (i * Place::along_m + place_.m) * 8 + (place_.lane >> 1) % 8; }
  __device__ int first_four() const { return place_.first_column / 4 + (place_.lane & 1) + (place_.lane >> 4) * 2; }

  template <int n>
  __device__ void multiply_pieces(const char* a, const char* b, int groups) {
    const int first = row_of(0), shuffle = first >> 1 & 3;  // other rows are multiples of 8 apart
    a += first * unit_bytes;
    const float* right = reinterpret_cast<const float*>(b) + first_four() * 4;
    // With few rows, two groups at a time hide the latency of their reads.
#pragma unroll(n <= 2 ? 2 : 1)
    for (int group = 0; group < groups; ++group, right += 4 * columns) {
      const char* const at = a + ((group ^ shuffle) << 4);
      float left[n][4];
#pragma unroll
      for (int i = 0; i < n; ++i)
        read_stored(left[i], reinterpret_cast<const float*>(at + i * Place::along_m * 8 * unit_bytes));
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int j = 0; j < fours; ++j) {
          float filters[4];
          read_stored(filters, right + k * columns + 16 * j);
#pragma unroll
          for (int i = 0; i < n; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc_[i][4 * j + e] = fmaf(left[i][k], filters[e], acc_[i][4 * j + e]);
        }
    }
  }

  Place place_;
  float acc_[pieces][4 * fours];
};

}  // namespace lenslet::cuda
