// Data flow: a group of B's rows streams past the rows of A; each vector of B is loaded once, each of A once per group.
// Accumulators are vectors of partial sums over k, added at the end; rows x columns x steps of them, 8 to 12, hide the
// FMA latency (4 cycles, 2 units). One row takes two steps of four columns: 8 or 2 streams are slower than 4 (one core
// of an EPYC, 8, 4 and 2 streams: VGG-16's 4096x4096 2.00, 1.75, 1.71 ms; 25088x4096 10.8, 11.0, 13.4). Manual
// prefetching gains nothing. Roofline: B's bytes.
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

// k per partial sum: short sums have smaller rounding errors.
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

// For B [k,n]: columns that are accumulated in L1 at a time, while a few rows of B stream past. With blocks of columns
// in registers each row came from another page (1x1024x1024: 81 us instead of 50). Four streams take 37 us, eight 45,
// reading alone 33. One row also prefetches the next four (busy machine: 72 us instead of 80; more rows lose by it).
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
