#pragma once
// The epilogue of gemm_cute_sm90.cuh: scale, c, residual and activation in the registers of the accumulators. Each warp
// then stages a part, 16 rows x 128 bytes, in shared memory, and TMA stores it while the warp multiplies the next tile.
// If rows of y are not multiples of 16 bytes, which TMA requires, the warp copies the part itself, row by row.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cute/tensor.hpp>
#include <type_traits>

#include "base/cuda/tma.cuh"
#include "ops/gemm/cute/epilogue.cuh"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Rounds two neighbours of a row with one instruction.
__device__ inline std::uint32_t rounded_pair(__half, float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline std::uint32_t rounded_pair(__nv_bfloat16, float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
/// Clamps both numbers of a pair; NaN stays NaN. Equal to clamping before rounding, which is monotonic.
__device__ inline std::uint32_t limited_pair(__half, std::uint32_t pair, std::uint32_t low, std::uint32_t high) {
  asm("max.NaN.f16x2 %0, %0, %1;\n\tmin.NaN.f16x2 %0, %0, %2;" : "+r"(pair) : "r"(low), "r"(high));
  return pair;
}
__device__ inline std::uint32_t limited_pair(__nv_bfloat16, std::uint32_t pair, std::uint32_t low, std::uint32_t high) {
  asm("max.NaN.bf16x2 %0, %0, %1;\n\tmin.NaN.bf16x2 %0, %0, %2;" : "+r"(pair) : "r"(low), "r"(high));
  return pair;
}
/// Two neighbours in memory.
template <typename Y>
using Pair = std::conditional_t<std::is_same_v<Y, float>, float2,
                                std::conditional_t<std::is_same_v<Y, __half>, __half2, __nv_bfloat162>>;
__device__ inline float2 widened(float2 pair) { return pair; }
__device__ inline float2 widened(__half2 pair) { return __half22float2(pair); }
__device__ inline float2 widened(__nv_bfloat162 pair) { return __bfloat1622float2(pair); }

/// The epilogue of a warp. `rows64`: blocks of 64 rows per warpgroup, with 16 rows per warp each; `tile_n`: columns.
///
/// A thread holds a block's accumulators as wgmma leaves them (PTX ISA, "Register Fragments ... D"), layout
/// ((2,2,tile_n/8)) of (neighbour, row lane/4 or lane/4 + 8, eight columns): accumulator e + 2 * half + 4 * eight
/// belongs to row lane / 4 + 8 * half and column 8 * eight + 2 * (lane % 4) + e. So a part is a contiguous run of them.
template <int rows64, int tile_n, int buffers>
class Sm90Epilogue {
 public:
  /// `staging`: the warp's buffers, 1024-byte aligned. Call after wait_for_previous().
  __device__ Sm90Epilogue(const CuteEpilogue& epilogue, const CUtensorMap& y_map, std::byte* staging)
      : e_(epilogue),
        map_(y_map),
        staging_(staging),
        lane_(static_cast<int>(threadIdx.x) % 32),
        plain_(e_.by_tma && (e_.c == nullptr || e_.c_row == 0) && e_.residual == nullptr && e_.activation.is_clamp()) {
    if (lane_ == 0 && e_.by_tma) prefetch_map(map_);
    __syncwarp();
  }

  /// Starts a tile at column j. If c is the same in all rows, it loads during the main loop: lane l takes column l of
  /// every 32.
  __device__ __forceinline__ void begin(int j) {
    if (e_.c == nullptr || e_.c_row != 0) return;
#pragma unroll
    for (int piece = 0; piece < pieces_n; ++piece)
      c_[piece] = e_.c[column_in_y(j + piece * columns + lane_) * e_.c_col];
  }

  /// Stores a finished tile: the warp's part begins at row i and column j of the matrix, each further block of 64 rows
  /// 128 rows lower. `Y`: y's device type.
  template <typename Y, typename Acc>
  __device__ __forceinline__ void finish(const Acc& acc, int matrix, int i, int j) {
    if (plain_)
      finish_plain<Y>(acc, matrix, i, j);
    else
      finish_any<Y>(acc, matrix, i, j);
  }

  /// After the last tile: waits until y is written and shared memory is free.
  __device__ void end() const {
    if (lane_ == 0) tma_wait();
    __syncwarp();
  }

 private:
  /// The common case: at most a c by column and a clamp, stored by TMA. No loop and no single-thread branch; 16-bit
  /// types do all arithmetic first, so that only TMA is waited for. An exposed 128x256 tile takes 2.5 us (H200); in a
  /// loop over 32 columns it took 4.6 (H100).
  template <typename Y, typename Acc>
  __device__ __forceinline__ void finish_plain(const Acc& acc, int matrix, int i, int j) {
    constexpr int part_n = part_columns<Y>, parts_n = tile_n / part_n, parts = rows64 * parts_n;
    const Clamp clamp = e_.activation.clamp();
    // Accumulators `sum` and `sum + 1`, of columns `column` and `column + 1` of the thread's columns in every eight.
    const auto finished = [&](int sum, float2 added) {
      return float2{fmaf(e_.alpha, acc(sum), added.x), fmaf(e_.alpha, acc(sum + 1), added.y)};
    };
    const auto added_to = [&](int column) {
      const float c = e_.beta * c_[column / columns];
      const int lane = column % columns + lane_ % 4 * 2;
      return float2{__shfl_sync(0xFFFFFFFFU, c, lane), __shfl_sync(0xFFFFFFFFU, c, lane + 1)};
    };
    const auto is_in_y = [&](int part) {
      return i + part / parts_n * 128 < e_.m && j + part % parts_n * part_n < e_.n;
    };
    const auto store = [&](int part, const void* staged) {
      store_part(staged, j + part % parts_n * part_n, i + part / parts_n * 128, matrix);
    };
    if constexpr (sizeof(Y) == 2) {
      std::uint32_t words[parts][part_n / 4];
#pragma unroll
      for (int column = 0; column < tile_n; column += 8) {
        const float2 added = added_to(column);
#pragma unroll
        for (int block = 0; block < rows64; ++block)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float2 pair = finished((block * tile_n + column) / 2 + half * 2, added);
            words[block * parts_n + column / part_n][column % part_n / 4 + half] = rounded_pair(Y{}, pair.x, pair.y);
          }
      }
      if (e_.activation.kind != Activation::Kind::none) {
        const std::uint32_t low = rounded_pair(Y{}, clamp.low, clamp.low);
        const std::uint32_t high = rounded_pair(Y{}, clamp.high, clamp.high);
#pragma unroll
        for (int part = 0; part < parts; ++part)
#pragma unroll
          for (int word = 0; word < part_n / 4; ++word)
            words[part][word] = limited_pair(Y{}, words[part][word], low, high);
      }
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        if (!is_in_y(part)) continue;
        Y* const staged = next_buffer<Y>();
#pragma unroll
        for (int pair = 0; pair < part_n / 16; ++pair) stage_words(staged, pair * 16, &words[part][pair * 4]);
        store(part, staged);
      }
    } else {
      const bool odd = lane_ / 4 % 2 != 0;
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        if (!is_in_y(part)) continue;
        float v[part_n / 2];
#pragma unroll
        for (int eight = 0; eight < part_n / 8; ++eight) {
          const float2 added = added_to(part % parts_n * part_n + eight * 8);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float2 pair = finished(part * (part_n / 2) + eight * 4 + half * 2, added);
            v[eight * 4 + half * 2] = clamp(pair.x);
            v[eight * 4 + half * 2 + 1] = clamp(pair.y);
          }
        }
        Y* const staged = next_buffer<Y>();
        stage_pairs(staged, v, odd);
        store(part, staged);
      }
    }
  }

  /// All other cases: a loop over 32 columns whose body is mostly shared, to save code. Registers have compile-time
  /// indices.
  template <typename Y, typename Acc>
  __device__ __forceinline__ void finish_any(const Acc& acc, int matrix, int i, int j) {
    constexpr int pieces = rows64 * pieces_n;
    constexpr int pieces_a_part = part_columns<Y> / columns;
    Y* staged = nullptr;
#pragma unroll 1
    for (int piece = 0; piece < pieces; ++piece) {
      const int row = i + piece / pieces_n * 128, column = j + piece % pieces_n * columns;
      const int in_part = piece % pieces_a_part, part_column = column - in_part * columns;
      if (row >= e_.m || part_column >= e_.n) continue;
      const int first_row = row + lane_ / 4, first_column = column + lane_ % 4 * 2;
      float v[values], c = 0;
#pragma unroll
      for (int known = 0; known < pieces; ++known)
        if (piece == known) {
#pragma unroll
          for (int at = 0; at < values; ++at) v[at] = e_.alpha * acc(known * values + at);
          c = c_[known % pieces_n];
        }
      if (e_.c != nullptr) {
        if (e_.c_row == 0) {
#pragma unroll
          for (int eight = 0; eight < values / 4; ++eight)
#pragma unroll
            for (int next = 0; next < 2; ++next) {
              const float of_column = e_.beta * __shfl_sync(0xFFFFFFFFU, c, eight * 8 + lane_ % 4 * 2 + next);
              v[eight * 4 + next] += of_column;
              v[eight * 4 + 2 + next] += of_column;
            }
        } else {
          add_matrix_c(v, first_row, first_column);
        }
      }
      if (e_.residual != nullptr) add_residual<Y>(v, matrix, first_row, first_column);
      if (in_part == 0) staged = next_buffer<Y>();
      stage(v, staged, in_part * columns);
      if (in_part + 1 < pieces_a_part) continue;
      if (e_.by_tma) {
        store_part(staged, part_column, row, matrix);
      } else {
        __syncwarp();
        copy_rows(staged, matrix, row, part_column);
        __syncwarp();
      }
    }
  }

  /// The warp's next buffer, once TMA has read the part stored from it: waits for all but the latest buffers - 1
  /// stores.
  template <typename Y>
  __device__ __forceinline__ Y* next_buffer() {
    std::byte* const buffer = staging_ + turn_ * cute_part_bytes;
    turn_ = turn_ + 1 < buffers ? turn_ + 1 : 0;
    if (lane_ == 0) tma_wait_read<buffers - 1>();
    __syncwarp();
    return reinterpret_cast<Y*>(buffer);
  }
  __device__ __forceinline__ void store_part(const void* staged, int column, int row, int matrix) const {
    fence_proxy_async_shared();
    __syncwarp();
    if (lane_ == 0) {
      cute::SM90_TMA_STORE_3D::copy(&map_, staged, column, row, matrix);
      tma_commit();
    }
    __syncwarp();
  }

  static constexpr int columns = 32, values = columns / 2;  ///< of a piece, and of it a thread's
  static constexpr int pieces_n = tile_n / columns;

  /// Offset of element (row, column) of a part, in elements: rows of 128 bytes, or 64, with TMA's swizzle of 16-byte
  /// units by the row (by every second one for 64 bytes).
  template <typename Y>
  static constexpr int part_columns = cute_part_columns(tile_n, sizeof(Y));
  template <typename Y>
  static constexpr int unit_bits = sizeof(Y) == 2 ? 3 : 2;  // 16 bytes are 2^unit_bits elements
  template <typename Y>
  using Part =
      decltype(cute::composition(cute::Swizzle < part_columns<Y> * sizeof(Y) == 128 ? 3 : 2, unit_bits<Y>, 3 > {},
                                 cute::Layout<cute::Shape<cute::_16, cute::Int<part_columns<Y>>>,
                                              cute::Stride<cute::Int<part_columns<Y>>, cute::_1>>{}));

  __device__ int row_in_y(int i) const { return min(i, e_.m - 1); }
  __device__ int column_in_y(int j) const { return min(j, e_.n - 1); }

  __device__ __forceinline__ void add_matrix_c(float (&v)[values], int i, int j) const {
    const float* const upper = e_.c + row_in_y(i) * e_.c_row;
    const float* const lower = e_.c + row_in_y(i + 8) * e_.c_row;
#pragma unroll
    for (int at = 0; at < values; ++at)
      v[at] += e_.beta * (at / 2 % 2 == 0 ? upper : lower)[column_in_y(j + at / 4 * 8 + at % 2) * e_.c_col];
  }

  /// The residual may be y: a warp reads its part before writing it.
  template <typename Y>
  __device__ __forceinline__ void add_residual(float (&v)[values], int matrix, int i, int j) const {
    const Y* const from = static_cast<const Y*>(e_.residual) + std::int64_t{matrix} * e_.m * e_.n;
    const Y* const upper = from + std::int64_t{row_in_y(i)} * e_.n;
    const Y* const lower = from + std::int64_t{row_in_y(i + 8)} * e_.n;
#pragma unroll
    for (int pair = 0; pair < values / 2; ++pair) {
      const Y* const row = pair % 2 == 0 ? upper : lower;
      const int column = j + pair / 2 * 8;
      float2 added;
      if (e_.vectors)
        added = widened(*reinterpret_cast<const Pair<Y>*>(row + min(column, e_.n - 2)));
      else
        added = {to_f32(row[column_in_y(column)]), to_f32(row[column_in_y(column + 1)])};
      v[pair * 2] += added.x;
      v[pair * 2 + 1] += added.y;
    }
  }

  /// Stages 16 columns of a part. stmatrix stores four 8x8 matrices of 16 bits from wgmma's register layout; lane l
  /// gives the address of row l % 8 of matrix l / 8.
  template <typename Y>
  __device__ __forceinline__ void stage_words(Y* staged, int column, const std::uint32_t* words) const {
    cute::uint128_t& to = *reinterpret_cast<cute::uint128_t*>(staged + Part<Y>{}(lane_ % 16, column + lane_ / 16 * 8));
    cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3], to);
  }
  /// Activates, rounds and stages.
  template <typename Y>
  __device__ __forceinline__ void stage(float (&v)[values], Y* staged, int column) const {
    e_.activation.apply_for_halves(v);
#pragma unroll
    for (int pair = 0; pair < values / 8; ++pair) {
      std::uint32_t words[4];
#pragma unroll
      for (int at = 0; at < 4; ++at) words[at] = rounded_pair(Y{}, v[pair * 8 + at * 2], v[pair * 8 + at * 2 + 1]);
      stage_words(staged, column + pair * 16, words);
    }
  }
  /// Stages floats in pairs. A half-warp stores 4 rows at once; the same two 16-byte units of rows 0 and 1 would share
  /// banks (unit ^ row gives the same pair), so odd rows store another eight columns first.
  __device__ __forceinline__ void stage_pairs(float* staged, const float (&v)[values], bool odd) const {
#pragma unroll
    for (int eight = 0; eight < values / 4; ++eight)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int plain = eight * 4 + half * 2, other = (eight ^ 2) * 4 + half * 2;
        float* const to = staged + Part<float>{}(lane_ / 4 + half * 8, (odd ? eight ^ 2 : eight) * 8 + lane_ % 4 * 2);
        *reinterpret_cast<float2*>(to) = odd ? float2{v[other], v[other + 1]} : float2{v[plain], v[plain + 1]};
      }
  }
  __device__ __forceinline__ void stage(float (&v)[values], float* staged, int) const {
    if (e_.activation.is_clamp()) {
      const Clamp clamp = e_.activation.clamp();
#pragma unroll
      for (int at = 0; at < values; ++at) v[at] = clamp(v[at]);
    }
    stage_pairs(staged, v, lane_ / 4 % 2 != 0);
    if (e_.activation.is_clamp()) return;
      // Not unrolled: the code of other activations is long. A thread reads back only its own values.
#pragma unroll 1
    for (int eight = 0; eight < values / 4; ++eight) {
      float2* const upper = reinterpret_cast<float2*>(staged + Part<float>{}(lane_ / 4, eight * 8 + lane_ % 4 * 2));
      float2* const lower = reinterpret_cast<float2*>(staged + Part<float>{}(lane_ / 4 + 8, eight * 8 + lane_ % 4 * 2));
      const float4 value = e_.activation(float4{upper->x, upper->y, lower->x, lower->y});
      *upper = {value.x, value.y};
      *lower = {value.z, value.w};
    }
  }

  /// The warp copies 128 bytes of a row at once.
  template <typename Y>
  __device__ __forceinline__ void copy_rows(const Y* staged, int matrix, int i, int j) const {
    constexpr int each = 4 / static_cast<int>(sizeof(Y));
    if (lane_ * each >= part_columns<Y>) return;
    const int column = j + lane_ * each, rows = e_.m - i < cute_part_rows ? e_.m - i : cute_part_rows;
    Y* to = static_cast<Y*>(e_.y) + (std::int64_t{matrix} * e_.m + i) * e_.n + column;
#pragma unroll 1
    for (int row = 0; row < rows; ++row, to += e_.n) {
      const Y* const from = staged + Part<Y>{}(row, lane_ * each);
      if (each == 1 || e_.vectors) {
        if (column < e_.n) *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(from);
      } else {
#pragma unroll
        for (int at = 0; at < each; ++at)
          if (column + at < e_.n) to[at] = from[at];
      }
    }
  }

  const CuteEpilogue& e_;
  const CUtensorMap& map_;
  std::byte* staging_;
  int lane_, turn_ = 0;
  bool plain_;              ///< finish_plain() does it
  float c_[pieces_n] = {};  ///< of the tile, if it is the same for all rows
};

#endif

}  // namespace lenslet::cuda
