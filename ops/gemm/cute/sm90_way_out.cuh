#pragma once
// The way from sums to y of gemm_cute_sm90.cuh: scale, c, residual and activation in the registers that hold the sums,
// then a warp lays 16 rows x 128 bytes, a part, into shared memory, and the copy engine (TMA) stores it. Warps wait for
// nobody but the engine: while parts leave, they multiply the next tile. Where rows of y are no multiple of 16 bytes,
// which the engine cannot address, the warp copies the part itself, row by row.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cute/tensor.hpp>
#include <type_traits>

#include "base/cuda/tensor_copy.cuh"
#include "ops/gemm/cute/tiles.h"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Two neighbours in a row, each rounded once, in one instruction.
__device__ inline std::uint32_t rounded_pair(__half, float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline std::uint32_t rounded_pair(__nv_bfloat16, float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline float2 pair_at(const float* at) { return *reinterpret_cast<const float2*>(at); }
__device__ inline float2 pair_at(const __half* at) { return __half22float2(*reinterpret_cast<const __half2*>(at)); }
__device__ inline float2 pair_at(const __nv_bfloat16* at) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(at));
}
__device__ inline float value_at(const float* at) { return *at; }
__device__ inline float value_at(const __half* at) { return __half2float(*at); }
__device__ inline float value_at(const __nv_bfloat16* at) { return __bfloat162float(*at); }

/// A warp's. `rows64`: blocks of 64 rows of a tile that its warpgroup has, of which it has 16 each; `tile_n`: columns.
///
/// Of a block the sums lie in a thread as wgmma leaves them (PTX ISA, "Register Fragments ... D"), which is the layout
/// ((2,2,tile_n/8)) of (neighbour, row lane/4 or lane/4 + 8, eight columns): sum e + 2 * half + 4 * eight is that of
/// row lane / 4 + 8 * half and column 8 * eight + 2 * (lane % 4) + e. So a part is a run of a thread's sums.
template <int rows64, int tile_n, int buffers>
class WayOut {
 public:
  /// `staging`: the warp's, 1024-byte aligned. After wait_for_previous().
  __device__ WayOut(const CuteEpilogue& epilogue, const CUtensorMap& y_map, std::byte* staging)
      : e_(epilogue), map_(y_map), staging_(staging), lane_(static_cast<int>(threadIdx.x) % 32) {
    if (lane_ == 0 && e_.by_tma) prefetch_map(map_);
    __syncwarp();
  }

  /// All sums of a tile are there: the warp's begin at row i and column j of that matrix, and with each block of 64
  /// rows 128 rows further down. `Y`: y's type on the device.
  template <typename Y, typename Sums>
  __device__ __forceinline__ void finish(const Sums& sums, int matrix, int i, int j) {
    constexpr int columns = 128 / static_cast<int>(sizeof(Y)), values = columns / 2;
    constexpr int parts_n = tile_n / columns, parts = rows64 * parts_n;
    // A loop, and most of its body once, for the sake of the code's size; registers are indexed by what is known here.
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      const int row = i + part / parts_n * 128, column = j + part % parts_n * columns;
      if (row >= e_.m || column >= e_.n) continue;
      float v[values];
#pragma unroll
      for (int known = 0; known < parts; ++known)
        if (part == known) {
#pragma unroll
          for (int at = 0; at < values; ++at)
            v[at] = e_.alpha * sums(known / parts_n * (tile_n / 2) + known % parts_n * values + at);
        }
      add_c(v, row + lane_ / 4, column + lane_ % 4 * 2);
      add_residual<Y>(v, matrix, row + lane_ / 4, column + lane_ % 4 * 2);
      std::byte* const staged = staging_ + turn_ * cute_part_bytes;
      turn_ = turn_ + 1 < buffers ? turn_ + 1 : 0;
      // The part that left from here before was read: of the latest groups of stores all but buffers - 1.
      if (lane_ == 0) wait_until_read<buffers - 1>();
      __syncwarp();
      stage(v, reinterpret_cast<Y*>(staged));
      if (e_.by_tma) {
        order_copies_after_shared_stores();
        __syncwarp();
        if (lane_ == 0) {
          cute::SM90_TMA_STORE_3D::copy(&map_, staged, column, row, matrix);
          commit_stores();
        }
        __syncwarp();
      } else {
        __syncwarp();
        copy_rows(reinterpret_cast<const Y*>(staged), matrix, row, column);
        __syncwarp();
      }
    }
  }

  /// After the last tile: shared memory may go, y is there.
  __device__ void end() const {
    if (lane_ == 0) wait_for_stores();
    __syncwarp();
  }

 private:
  /// Where element (row, column) of a part lies, in elements: rows of 128 bytes, in which the copy engine finds 16-byte
  /// units permuted by the row.
  template <typename Y>
  using Part =
      decltype(cute::composition(cute::Swizzle < 3, sizeof(Y) == 2 ? 3 : 2, 3 > {},
                                 cute::Layout<cute::Shape<cute::Int<cute_part_rows>, cute::Int<128 / sizeof(Y)>>,
                                              cute::Stride<cute::Int<128 / sizeof(Y)>, cute::_1>>{}));

  /// c in columns j, j + 1, as far as y has them.
  __device__ float2 columns_of_c(int j) const {
    if (e_.c_pairs) return j < e_.n ? pair_at(e_.c + j) : float2{};
    return {j < e_.n ? e_.c[j * e_.c_col] : 0, j + 1 < e_.n ? e_.c[(j + 1) * e_.c_col] : 0};
  }

  /// The thread's values begin at row i, column j.
  template <int values>
  __device__ __forceinline__ void add_c(float (&v)[values], int i, int j) const {
    if (e_.c == nullptr) return;
    if (e_.c_row == 0) {  // a bias by column, or one number
#pragma unroll
      for (int eight = 0; eight < values / 4; ++eight) {
        const float2 c = columns_of_c(j + eight * 8);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          v[eight * 4 + half * 2] += e_.beta * c.x;
          v[eight * 4 + half * 2 + 1] += e_.beta * c.y;
        }
      }
      return;
    }
#pragma unroll
    for (int at = 0; at < values; ++at) {
      const int row = i + at / 2 % 2 * 8, column = j + at / 4 * 8 + at % 2;
      if (row < e_.m && column < e_.n) v[at] += e_.beta * e_.c[row * e_.c_row + column * e_.c_col];
    }
  }

  /// Which may be y: a warp reads its part before it writes it.
  template <typename Y, int values>
  __device__ __forceinline__ void add_residual(float (&v)[values], int matrix, int i, int j) const {
    if (e_.residual == nullptr) return;
#pragma unroll
    for (int pair = 0; pair < values / 2; ++pair) {
      const int row = i + pair % 2 * 8, column = j + pair / 2 * 8;
      if (row >= e_.m) continue;
      const Y* const at = static_cast<const Y*>(e_.residual) + (std::int64_t{matrix} * e_.m + row) * e_.n + column;
      if (e_.vectors) {
        if (column >= e_.n) continue;
        const float2 residual = pair_at(at);
        v[pair * 2] += residual.x;
        v[pair * 2 + 1] += residual.y;
      } else {
        if (column < e_.n) v[pair * 2] += value_at(at);
        if (column + 1 < e_.n) v[pair * 2 + 1] += value_at(at + 1);
      }
    }
  }

  /// Activation, rounding, and to shared memory. stmatrix stores four matrices of 8 rows x 16 bytes of which a thread
  /// has what wgmma leaves in it; lane l says where row l % 8 of matrix l / 8 goes.
  template <typename Y, int values>
  __device__ __forceinline__ void stage(float (&v)[values], Y* staged) const {
    e_.activation.apply_for_halves(v);
#pragma unroll
    for (int pair = 0; pair < values / 8; ++pair) {
      std::uint32_t words[4];
#pragma unroll
      for (int at = 0; at < 4; ++at) words[at] = rounded_pair(Y{}, v[pair * 8 + at * 2], v[pair * 8 + at * 2 + 1]);
      cute::uint128_t& to =
          *reinterpret_cast<cute::uint128_t*>(staged + Part<Y>{}(lane_ % 16, pair * 16 + lane_ / 16 * 8));
      cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3], to);
    }
  }
  /// Pairs of floats. A half-warp stores 4 rows at once, whose same two units of 16 bytes would lie in the banks of two
  /// units only ((unit ^ row) of rows 0 and 1 are the same pair); so odd rows store another eight of columns first.
  template <int values>
  __device__ __forceinline__ void stage(float (&v)[values], float* staged) const {
    if (e_.activation.is_clamp()) {
      const Clamp clamp = e_.activation.clamp();
#pragma unroll
      for (int at = 0; at < values; ++at) v[at] = clamp(v[at]);
    }
    const bool odd = lane_ / 4 % 2 != 0;
#pragma unroll
    for (int eight = 0; eight < values / 4; ++eight)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int plain = eight * 4 + half * 2, other = (eight ^ 2) * 4 + half * 2;
        float* const to = staged + Part<float>{}(lane_ / 4 + half * 8, (odd ? eight ^ 2 : eight) * 8 + lane_ % 4 * 2);
        *reinterpret_cast<float2*>(to) = odd ? float2{v[other], v[other + 1]} : float2{v[plain], v[plain + 1]};
      }
    if (e_.activation.is_clamp()) return;
      // The others' code is long: once. What a thread reads it has written.
#pragma unroll 1
    for (int eight = 0; eight < values / 4; ++eight) {
      float2* const upper = reinterpret_cast<float2*>(staged + Part<float>{}(lane_ / 4, eight * 8 + lane_ % 4 * 2));
      float2* const lower = reinterpret_cast<float2*>(staged + Part<float>{}(lane_ / 4 + 8, eight * 8 + lane_ % 4 * 2));
      const float4 value = e_.activation(float4{upper->x, upper->y, lower->x, lower->y});
      *upper = {value.x, value.y};
      *lower = {value.z, value.w};
    }
  }

  /// 128 bytes of a row by the warp at once.
  template <typename Y>
  __device__ __forceinline__ void copy_rows(const Y* staged, int matrix, int i, int j) const {
    constexpr int each = 4 / static_cast<int>(sizeof(Y));
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
};

#endif

}  // namespace lenslet::cuda
