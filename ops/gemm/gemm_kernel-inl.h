// The micro-kernel of gemm_cpu.cpp: one tile of C in registers, compiled per instruction set.
#if defined(LENSLET_OPS_GEMM_GEMM_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_OPS_GEMM_GEMM_KERNEL_INL_H_
#undef LENSLET_OPS_GEMM_GEMM_KERNEL_INL_H_
#else
#define LENSLET_OPS_GEMM_GEMM_KERNEL_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "ops/core/simd/bounds-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Register tile: tile_rows x tile_vectors accumulators + tile_vectors of B + 1 element of A. 6x2 uses 15 of the 16
// registers of SSE and AVX2, 13x2 uses 29 of the 32 of AVX-512 and NEON (14x2 is no faster, and 14 rows of A 4 KiB
// apart exceed an L1 set). With two vectors of columns a broadcast of A serves two multiply-adds, so loads do not
// limit. FMAs take 4 cycles on 2 units: 8 accumulators keep them busy, hence 8 rows for one-vector panels (narrow_rows)
// and several panels at once for 1 to 3 rows (panels_at_once).
//
// Each element of C is summed over k in the same order in any tile: its bits depend only on its row of A and column of
// B.
constexpr int tile_vectors = 2;
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
#define LENSLET_FEW_REGISTERS 1
constexpr int tile_rows = 6;
constexpr int narrow_rows = 8;
#else
#define LENSLET_FEW_REGISTERS 0
constexpr int tile_rows = 13;
constexpr int narrow_rows = 13;
#endif
constexpr int max_tile_rows = tile_rows > narrow_rows ? tile_rows : narrow_rows;

// True if a tile's last vector can be stored in part at no cost. (AVX2 could, but masked stores take some 20
// instructions on AMD.)
constexpr bool stores_parts = HWY_TARGET == HWY_AVX3;

/// One tile, one block of k.
struct Tile {
  const float* const* rows = nullptr;      ///< starts of the rows of A, as many as the kernel's Rows
  const std::int64_t* segments = nullptr;  ///< offsets from a row's start
  std::int64_t segment_count = 0;
  std::int64_t segment_length = 0;
  std::int64_t partial_length = 0;  ///< k per partial sum within a segment
  const float* b = nullptr;         ///< [segment_count*segment_length][Vectors*lanes]
  std::int64_t b_stride = 0;        ///< floats from a panel to the next, for kernels of several
  const float* ahead = nullptr;     ///< fetched into L2 meanwhile, ...
  std::int64_t ahead_step = 0;      ///< ... one line per step of k, floats apart
  const float* init = nullptr;      ///< added to the product: C itself, the residual, or null
  std::int64_t init_stride = 0;
  const float* bias = nullptr;  ///< or null
  float* c = nullptr;
  std::int64_t c_stride = 0;
  float low = 0, high = 0;  ///< the result is clamped to [low, high]; NaN passes
  /// With stores_parts: columns of the last vector to store, and to read of init and bias; 0: all.
  std::int64_t last_cols = 0;
};

/// Computes Rows x (Panels panels of Vectors vectors) of C.
template <int Rows, int Vectors, int Panels = 1>
void compute_tile(const Tile& t) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int Columns = Vectors * Panels;  // vectors
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V acc[Rows][Columns];
  HWY_UNROLL(16)
  for (int i = 0; i < Rows; ++i) {
    HWY_UNROLL(16)
    for (int v = 0; v < Columns; ++v) acc[i][v] = hn::Zero(d);
  }

  // The addend, C itself or a residual, comes from L3 or memory in products larger than L2: prefetched during the main
  // loop (64 to 256 channels at 56x56 with a residual, batch 8: 8.5 -> 6.3 ms).
  if (t.init != nullptr) {
    HWY_UNROLL(16)
    for (int i = 0; i < Rows; ++i) {
      HWY_UNROLL(16)
      for (int v = 0; v < Columns; ++v) __builtin_prefetch(t.init + i * t.init_stride + v * lanes, 0, 3);
    }
  }

  // Partial sums over t.partial_length elements of k.
  constexpr int max_lanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  HWY_ALIGN float sums[Rows * Columns * max_lanes];
  bool partial = false;

  const float* HWY_RESTRICT b = t.b;
  const float* ahead = t.ahead;
  for (std::int64_t s = 0; s < t.segment_count; ++s) {
    const float* a[Rows];
    HWY_UNROLL(16)
    for (int i = 0; i < Rows; ++i) a[i] = t.rows[i] + t.segments[s];
    for (std::int64_t k = 0;;) {
      const std::int64_t end = t.segment_length - k > t.partial_length ? k + t.partial_length : t.segment_length;
      for (; k < end; ++k) {
        __builtin_prefetch(ahead, 0, 2);
        ahead += t.ahead_step;
        V bv[Columns];
        HWY_UNROLL(16)
        for (int v = 0; v < Columns; ++v) bv[v] = hn::LoadU(d, b + v / Vectors * t.b_stride + v % Vectors * lanes);
        HWY_UNROLL(16)
        for (int i = 0; i < Rows; ++i) {
          const V av = hn::Set(d, a[i][k]);
          HWY_UNROLL(16)
          for (int v = 0; v < Columns; ++v) acc[i][v] = hn::MulAdd(av, bv[v], acc[i][v]);
        }
        b += Vectors * lanes;
      }
      if (k == t.segment_length) break;
      HWY_UNROLL(16)
      for (int i = 0; i < Rows; ++i) {
        HWY_UNROLL(16)
        for (int v = 0; v < Columns; ++v) {
          float* const at = sums + (i * Columns + v) * max_lanes;
          hn::Store(partial ? hn::Add(hn::Load(d, at), acc[i][v]) : acc[i][v], d, at);
          acc[i][v] = hn::Zero(d);
        }
      }
      partial = true;
    }
  }
  if (partial) {
    HWY_UNROLL(16)
    for (int i = 0; i < Rows; ++i) {
      HWY_UNROLL(16)
      for (int v = 0; v < Columns; ++v)
        acc[i][v] = hn::Add(hn::Load(d, sums + (i * Columns + v) * max_lanes), acc[i][v]);
    }
  }

  // Separate loops with parameters from `t`, which the compiler must reload after each store: one loop for all took 80
  // cycles per 13x2 tile, as much as 6 steps of k.
  const auto finish = [&](auto part) HWY_ATTR {
    const auto some = hn::FirstN(d, static_cast<std::size_t>(t.last_cols));
    const auto load = [&](int v, const float* from) HWY_ATTR {
      return decltype(part)::value && v == Columns - 1 ? hn::MaskedLoad(some, d, from) : hn::LoadU(d, from);
    };
    if (const float* const bias = t.bias; bias != nullptr) {
      V add[Columns];
      HWY_UNROLL(16)
      for (int v = 0; v < Columns; ++v) add[v] = load(v, bias + v * lanes);
      HWY_UNROLL(16)
      for (int i = 0; i < Rows; ++i) {
        HWY_UNROLL(16)
        for (int v = 0; v < Columns; ++v) acc[i][v] = hn::Add(acc[i][v], add[v]);
      }
    }
    if (const float* init = t.init; init != nullptr) {
      const std::int64_t stride = t.init_stride;
      HWY_UNROLL(16)
      for (int i = 0; i < Rows; ++i, init += stride) {
        HWY_UNROLL(16)
        for (int v = 0; v < Columns; ++v) acc[i][v] = hn::Add(acc[i][v], load(v, init + v * lanes));
      }
    }
    const V low = hn::Set(d, t.low), high = hn::Set(d, t.high);
    const std::int64_t stride = t.c_stride;
    float* c = t.c;
    HWY_UNROLL(16)
    for (int i = 0; i < Rows; ++i, c += stride) {
      HWY_UNROLL(16)
      for (int v = 0; v < Columns; ++v) {
        const V result = at_most(high, at_least(low, acc[i][v]));
        if (decltype(part)::value && v == Columns - 1)
          hn::BlendedStore(result, some, d, c + v * lanes);
        else
          hn::StoreU(result, d, c + v * lanes);
      }
    }
  };
  if constexpr (stores_parts)
    if (t.last_cols != 0) return finish(std::true_type());
  finish(std::false_type());
}

using TileFunction = void (*)(const Tile&);

/// compute_tile for one panel and 1..tile_rows rows; with `narrow` one vector of columns, 1..narrow_rows.
inline TileFunction tile_function(int rows, bool narrow) {
#define LENSLET_TILE(r) \
  case r:               \
    return narrow ? &compute_tile<r, 1> : &compute_tile<r, tile_vectors>
  switch (rows) {
    LENSLET_TILE(1);
    LENSLET_TILE(2);
    LENSLET_TILE(3);
    LENSLET_TILE(4);
    LENSLET_TILE(5);
#if LENSLET_FEW_REGISTERS
    case 6:
      return narrow ? &compute_tile<6, 1> : &compute_tile<tile_rows, tile_vectors>;
    case 7:
      return &compute_tile<7, 1>;
#else
    LENSLET_TILE(6);
    LENSLET_TILE(7);
    LENSLET_TILE(8);
    LENSLET_TILE(9);
    LENSLET_TILE(10);
    LENSLET_TILE(11);
    LENSLET_TILE(12);
#endif
    default:
      return narrow ? &compute_tile<narrow_rows, 1> : &compute_tile<tile_rows, tile_vectors>;
  }
#undef LENSLET_TILE
#undef LENSLET_FEW_REGISTERS
}

/// Full panels per call for so few rows, for enough accumulators; 1: one is enough.
inline int panels_at_once(std::int64_t rows) { return rows == 1 ? 4 : (rows <= 3 ? 2 : 1); }

/// compute_tile for panels_at_once(rows) full panels, rows 1..3.
inline TileFunction few_rows_function(std::int64_t rows) {
  if (rows == 1) return &compute_tile<1, tile_vectors, 4>;
  if (rows == 2) return &compute_tile<2, tile_vectors, 2>;
  return &compute_tile<3, tile_vectors, 2>;
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
