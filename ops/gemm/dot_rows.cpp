// Data flow: a group of B's rows streams past the rows of A, each vector of B loaded once, each of A once a group. A
// sum is vectors of partial sums over k in registers, added up at the end. Registers: rows x columns x steps sums, 8 to
// 12: fewer would wait (a multiply-add takes 4 cycles, 2 units). One row: two steps of four columns, since 8 streams
// arrive from L3 and memory more slowly than 4, and 2 too (VGG-16's 4096x4096 on one core of an EPYC: 2.00, 1.75, 1.71
// ms; 25088x4096: 10.8, 11.0, 13.4). Prefetching by hand gains nothing. Floor: B's bytes at the memory's rate.
#include "ops/gemm/dot_rows.h"

#include <algorithm>
#include <type_traits>

#include "base/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm/dot_rows.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/over_channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

// Terms of a sum before it is set aside: short sums round less.
constexpr std::int64_t partial_terms = 256;

template <int Rows, int Columns, int Steps>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t k,
                              float* HWY_RESTRICT y, std::int64_t y_stride) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr int max_lanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  HWY_ALIGN float sums[Rows * Columns * max_lanes] = {};
  std::int64_t l = 0;
  while (l + Steps * lanes <= k) {
    const std::int64_t end = std::min(k - Steps * lanes, l + (partial_terms - 1) * lanes);
    V sum[Rows][Columns][Steps];
    HWY_UNROLL(4)
    for (int i = 0; i < Rows; ++i) {
      HWY_UNROLL(8)
      for (int j = 0; j < Columns; ++j) {
        HWY_UNROLL(4)
        for (int u = 0; u < Steps; ++u) sum[i][j][u] = hn::Zero(d);
      }
    }
    for (; l <= end; l += Steps * lanes) {
      V row[Rows][Steps];
      HWY_UNROLL(4)
      for (int i = 0; i < Rows; ++i) {
        HWY_UNROLL(4)
        for (int u = 0; u < Steps; ++u) row[i][u] = hn::LoadU(d, a + i * k + l + u * lanes);
      }
      HWY_UNROLL(8)
      for (int j = 0; j < Columns; ++j) {
        HWY_UNROLL(4)
        for (int u = 0; u < Steps; ++u) {
          const V column = hn::LoadU(d, b + j * k + l + u * lanes);
          HWY_UNROLL(4)
          for (int i = 0; i < Rows; ++i) sum[i][j][u] = hn::MulAdd(row[i][u], column, sum[i][j][u]);
        }
      }
    }
    HWY_UNROLL(4)
    for (int i = 0; i < Rows; ++i) {
      HWY_UNROLL(8)
      for (int j = 0; j < Columns; ++j) {
        float* const at = sums + (i * Columns + j) * max_lanes;
        V total = hn::Load(d, at);
        HWY_UNROLL(4)
        for (int u = 0; u < Steps; ++u) total = hn::Add(total, sum[i][j][u]);
        hn::Store(total, d, at);
      }
    }
  }
  for (int i = 0; i < Rows; ++i)
    for (int j = 0; j < Columns; ++j) {
      float total = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums + (i * Columns + j) * max_lanes)));
      for (std::int64_t rest = l; rest < k; ++rest) total += a[i * k + rest] * b[j * k + rest];
      y[i * y_stride + j] = total;
    }
}

template <int Rows, int Columns, int Steps>
void multiply_rows(const DotRows& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t k = call.problem.gemm_k;
  std::int64_t j = begin;
  const auto multiply = [&](auto columns) HWY_ATTR {
    multiply_tile<Rows, decltype(columns)::value, Steps>(call.a, call.b + j * k, k, call.y + j, call.problem.gemm_n);
    j += decltype(columns)::value;
  };
  while (j + Columns <= end) multiply(std::integral_constant<int, Columns>());
  while (j < end) multiply(std::integral_constant<int, 1>());
}

// Of B [k,n]: columns that are summed at a time, in the nearest cache, while some rows of B pass as streams. Blocks of
// columns in registers, a row after the other, read from a page of memory each time (1x1024x1024: 81 us for 50).
// Four streams: of eight 45 us for 37, of 33 that reading takes. One row has so little to do that it fetches the next
// four (in a busy minute 72 us for 80; rows that multiply more lose by it).
constexpr std::int64_t sums_at_once = 1024;

/// Adds `Streams` rows of B to the sums, which are zero where it begins.
template <int Rows, int Streams>
HWY_INLINE void add_streams(const DotRows& call, std::int64_t l, std::int64_t first, std::int64_t width, bool begins,
                            float* sums) {
  const std::int64_t k = call.problem.gemm_k, n = call.problem.gemm_n;
  const float* const b = call.b + l * n + first;
  over_channels(hn::ScalableTag<float>(), 0, width, [&](auto tag, std::int64_t j) HWY_ATTR {
    hn::Vec<decltype(tag)> row[Streams];
    HWY_UNROLL(8)
    for (int u = 0; u < Streams; ++u) {
      row[u] = hn::LoadU(tag, b + u * n + j);
      if constexpr (Rows == 1) __builtin_prefetch(b + (Streams + u) * n + j);
    }
    HWY_UNROLL(8)
    for (int i = 0; i < Rows; ++i) {
      float* const at = sums + i * sums_at_once + j;
      auto sum = begins ? hn::Zero(tag) : hn::LoadU(tag, at);
      HWY_UNROLL(8)
      for (int u = 0; u < Streams; ++u) sum = hn::MulAdd(hn::Set(tag, call.a[i * k + l + u]), row[u], sum);
      hn::StoreU(sum, tag, at);
    }
  });
}

template <int Rows>
void multiply_columns(const DotRows& call, std::int64_t begin, std::int64_t end) {
  constexpr int streams = 4;
  const std::int64_t k = call.problem.gemm_k, n = call.problem.gemm_n;
  HWY_ALIGN float sums[Rows * sums_at_once];
  for (std::int64_t first = begin; first < end; first += sums_at_once) {
    const std::int64_t width = std::min(sums_at_once, end - first);
    float* const y = call.y + first;
    for (std::int64_t l = 0, part_end = 0; l < k || part_end == 0;) {
      const std::int64_t part = l;
      part_end = std::max<std::int64_t>(1, std::min(k, l + partial_terms));
      for (; l + streams <= std::min(k, part_end); l += streams)
        add_streams<Rows, streams>(call, l, first, width, l == part, sums);
      for (; l < std::min(k, part_end); ++l) add_streams<Rows, 1>(call, l, first, width, l == part, sums);
      if (k == 0) std::fill(sums, sums + Rows * sums_at_once, 0.0F);
      for (int i = 0; i < Rows; ++i)
        for (std::int64_t j = 0; j < width; ++j)
          y[i * n + j] = part == 0 ? sums[i * sums_at_once + j] : y[i * n + j] + sums[i * sums_at_once + j];
    }
  }
}

template <int Rows>
void multiply_few_columns(const DotRows& call, std::int64_t begin, std::int64_t end) {
  if constexpr (Rows > 1)
    if (call.problem.gemm_m < Rows) return multiply_few_columns<Rows - 1>(call, begin, end);
  multiply_columns<Rows>(call, begin, end);
}

void multiply(const DotRows& call, std::int64_t begin, std::int64_t end) {
  const MatrixProblem& p = call.problem;
  if (!p.trans_b) {
    multiply_few_columns<most_dot_rows_of_columns>(call, begin, end);
  } else if (p.gemm_m == 1) {
    multiply_rows<1, 4, 2>(call, begin, end);
  } else if (p.gemm_m == 2) {
    multiply_rows<2, 4, 1>(call, begin, end);
  } else if (p.gemm_m == 3) {
    multiply_rows<3, 4, 1>(call, begin, end);
  } else if (p.gemm_m == 4) {
    multiply_rows<4, 2, 1>(call, begin, end);
  }
  for (std::int64_t i = 0; i < p.gemm_m; ++i) {
    float* const y = call.y + i * p.gemm_n;
    if (p.scales())
      for (std::int64_t j = begin; j < end; ++j) y[j] = p.scaled(y[j], j);
    if (p.c)
      for (std::int64_t j = begin; j < end; ++j) y[j] += p.beta * call.c[i * p.c_row + j * p.c_col];
    activate_f32(p.activation, y + begin, end - begin);
  }
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
HWY_EXPORT(multiply);

void dot_rows(const DotRows& call, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(multiply)(call, begin, end);
}

}  // namespace lenslet
#endif
