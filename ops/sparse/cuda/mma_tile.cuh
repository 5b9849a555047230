#pragma once
// A warp's products of a batch on tensor cores (mma.sync): 16 rows and 8 filters an instruction, 32 bytes of terms,
// sums in float32. With g = lane / 4 and t = lane % 4 a lane has of each the columns 2t, 2t + 1 of rows g and g + 8.

#include "ops/conv/cuda/half_mma.cuh"
#include "ops/sparse/cuda/gathered_stage.cuh"

namespace lenslet::cuda {

/// T: Float16, BFloat16, or float for TF32, whose instruction drops what lies below 10 mantissa bits: x is rounded to
/// nearest first; filters were when they were prepared.
template <typename T>
__device__ inline void multiply_terms(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) {
  if constexpr (std::is_same_v<T, float>)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    multiply_add<T>(sums, a, uint2{b0, b1});
}

template <typename T>
constexpr SparseArithmetic arithmetic_of() {
  if constexpr (std::is_same_v<T, float>) return SparseArithmetic::tf32;
  return std::is_same_v<T, Float16> ? SparseArithmetic::fp16 : SparseArithmetic::bf16;
}

template <typename T, int columns>
class MmaTile {
 public:
  using Stored = T;
  static constexpr SparseArithmetic arithmetic = arithmetic_of<T>();
  using Place = WarpPlace<columns>;

  __device__ void clear() {
#pragma unroll
    for (auto& row : sums_)
#pragma unroll
      for (auto& of : row)
#pragma unroll
        for (float& sum : of) sum = 0;
  }

  /// += a unit: `groups` times 32 bytes of channels of the batch's `rows` rows at `a`, and of the filters at `b`.
  __device__ void multiply(const char* a, const char* b, int rows, int groups) {
    const int count = place_.pieces(rows, 16);
    if (count == 0) return;
    with_count<pieces>(count, [&]<int n>() { multiply_pieces<n>(a, b, groups); });
  }

  /// As FmaTile's.
  __device__ void add_to(float* sums, const int* outputs, int rows, BlockRows block) const {
    const int column = place_.first_column + place_.lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < pieces; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = (i * Place::along_m + place_.m) * 16 + half * 8 + place_.lane / 4;
        if (row >= rows) continue;
        const int to = block.row_of(outputs[row]);
        if (to < 0) continue;
#pragma unroll
        for (int j = 0; j < eights; ++j) {
          auto* const at = reinterpret_cast<float2*>(sums + sums_offset<columns>(to, column / 4 + 2 * j) + column % 4);
          float2 sum = *at;
          sum.x += sums_[i][j][2 * half];
          sum.y += sums_[i][j][2 * half + 1];
          *at = sum;
        }
      }
  }

 private:
  static constexpr int eights = Place::width / 8, pieces = batch_rows / (16 * Place::along_m);

  template <int n>
  __device__ void multiply_pieces(const char* a, const char* b, int groups) {
    const int lane = place_.lane;
    const int a_row = place_.m * 16 + lane % 16, b_row = place_.first_column + lane % 8 + lane / 16 * 8;
    b += b_row * 32 + ((lane / 8 % 2 ^ (b_row >> 2 & 1)) << 4);  // other rows are multiples of 16 apart
#pragma unroll 1
    for (int group = 0; group < groups; ++group, b += columns * 32) {
      const char* const left = a + stage_offset(a_row, 2 * group + lane / 16);
      std::uint32_t right[eights / 2][4];
#pragma unroll
      for (int j = 0; j < eights / 2; ++j) load_matrices(right[j], b + j * 16 * 32);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        std::uint32_t rows[4];
        load_matrices(rows, left + i * Place::along_m * 16 * unit_bytes);
        if constexpr (std::is_same_v<T, float>)
#pragma unroll
          for (std::uint32_t& bits : rows) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)));
#pragma unroll
        for (int j = 0; j < eights; ++j)
          multiply_terms<T>(sums_[i][j], rows, right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  Place place_;
  float sums_[pieces][eights][4];
};

}  // namespace lenslet::cuda
