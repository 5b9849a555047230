#include "ops/conv/cpu/winograd_transforms.h"

#include <cstddef>

#include "base/simd/targets.h"
#include "ops/conv/winograd_matrices.h"
#include "ops/core/fused_clamp.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/winograd_transforms.cpp"
// foreach_target.h comes first.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/over_channels-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <int M>
inline constexpr int alpha_of = M + 2;

template <int M, int Row, int J>
inline constexpr double bt = winograd_matrices<M>.bt[Row][J];
template <int M, int Row, int J>
inline constexpr double at = winograd_matrices<M>.at[Row][J];

/// coefficient * x + sum, without a product by 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V plus(D d, double coefficient, V x, V sum) {
  if (coefficient == 1) return hn::Add(sum, x);
  if (coefficient == -1) return hn::Sub(sum, x);
  return hn::MulAdd(hn::Set(d, static_cast<float>(coefficient)), x, sum);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V times(D d, double coefficient, V x) {
  if (coefficient == 1) return x;
  if (coefficient == -1) return hn::Neg(x);
  return hn::Mul(hn::Set(d, static_cast<float>(coefficient)), x);
}

template <int M, int Row, int J>
constexpr bool any_left() {
  if constexpr (J >= alpha_of<M>)
    return false;
  else
    return bt<M, Row, J> != 0 || any_left<M, Row, J + 2>();
}

/// The sum of bt[Row][j] * x[j] over j = J, J + 2, .. : one half of a row of B^T.
template <int M, int Row, int J, class D, class V = hn::Vec<D>>
HWY_INLINE V half_row(D d, const V* x) {
  static_assert(any_left<M, Row, J>());
  if constexpr (!any_left<M, Row, J + 2>()) {
    return times(d, bt<M, Row, J>, x[J]);
  } else {
    const V rest = half_row<M, Row, J + 2>(d, x);
    if constexpr (bt<M, Row, J> == 0)
      return rest;
    else
      return plus(d, bt<M, Row, J>, x[J], rest);
  }
}

/// The rows of points +p and -p: the even half plus and minus the odd half.
template <int M, int Pair, class D, class V = hn::Vec<D>>
HWY_INLINE void input_pairs(D d, const V* x, V* y) {
  if constexpr (Pair < M / 2) {
    constexpr int row = 1 + 2 * Pair;
    const V even = half_row<M, row, 0>(d, x);
    const V odd = half_row<M, row, 1>(d, x);
    y[row] = hn::Add(even, odd);
    y[row + 1] = hn::Sub(even, odd);
    input_pairs<M, Pair + 1>(d, x, y);
  }
}

/// y = B^T x, alpha values each.
template <int M, class D, class V = hn::Vec<D>>
HWY_INLINE void input_transform(D d, const V* x, V* y) {
  y[0] = half_row<M, 0, 0>(d, x);
  input_pairs<M, 0>(d, x, y);
  y[M + 1] = half_row<M, M + 1, 1>(d, x);
}

/// The sum of at[Row][1 + 2 * pair] * half[pair] from `Pair` on.
template <int M, int Row, int Pair, class D, class V = hn::Vec<D>>
HWY_INLINE V power_sum(D d, const V* half) {
  if constexpr (Pair + 1 == M / 2) {
    return times(d, at<M, Row, 1 + 2 * Pair>, half[Pair]);
  } else {
    return plus(d, at<M, Row, 1 + 2 * Pair>, half[Pair], power_sum<M, Row, Pair + 1>(d, half));
  }
}

template <int M, int Row, class D, class V = hn::Vec<D>>
HWY_INLINE void output_rows(D d, const V* x, const V* even, const V* odd, V* y) {
  if constexpr (Row < M) {
    y[Row] = power_sum<M, Row, 0>(d, Row % 2 == 0 ? even : odd);
    if constexpr (Row == 0) y[Row] = hn::Add(y[Row], x[0]);
    if constexpr (Row == M - 1) y[Row] = hn::Add(y[Row], x[M + 1]);
    output_rows<M, Row + 1>(d, x, even, odd, y);
  }
}

/// y = A^T x: alpha values to M.
template <int M, class D, class V = hn::Vec<D>>
HWY_INLINE void output_transform(D d, const V* x, V* y) {
  V even[M / 2], odd[M / 2];
  HWY_UNROLL(8)
  for (int pair = 0; pair < M / 2; ++pair) {
    even[pair] = hn::Add(x[1 + 2 * pair], x[2 + 2 * pair]);
    odd[pair] = hn::Sub(x[1 + 2 * pair], x[2 + 2 * pair]);
  }
  output_rows<M, 0>(d, x, even, odd, y);
}

template <int M>
void input_tile(const WinogradInputTile& tile) {
  constexpr int alpha = alpha_of<M>;
  const auto body = [&](auto d, std::int64_t c) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    V rows[alpha][alpha];  // B^T d
    HWY_UNROLL(8)
    for (int j = 0; j < alpha; ++j) {
      V x[alpha], y[alpha];
      HWY_UNROLL(8)
      for (int i = 0; i < alpha; ++i) x[i] = hn::LoadU(d, tile.pixels[i * alpha + j] + c);
      input_transform<M>(d, x, y);
      HWY_UNROLL(8)
      for (int i = 0; i < alpha; ++i) rows[i][j] = y[i];
    }
    float* v = tile.v + c;
    HWY_UNROLL(8)
    for (int i = 0; i < alpha; ++i) {
      V y[alpha];
      input_transform<M>(d, rows[i], y);
      HWY_UNROLL(8)
      for (int j = 0; j < alpha; ++j) hn::StoreU(y[j], d, v + (i * alpha + j) * tile.stride);
    }
  };
  over_channels(hn::ScalableTag<float>(), 0, tile.channels, body);
}

template <int M>
void output_tile(const WinogradOutputTile& tile, const FusedClamp& clamp) {
  constexpr int alpha = alpha_of<M>;
  const auto body = [&](auto d, std::int64_t k) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    V rows[M][alpha];  // A^T M
    const float* products = tile.products + k;
    HWY_UNROLL(8)
    for (int j = 0; j < alpha; ++j) {
      V x[alpha], y[M];
      HWY_UNROLL(8)
      for (int i = 0; i < alpha; ++i) x[i] = hn::LoadU(d, products + (i * alpha + j) * tile.stride);
      output_transform<M>(d, x, y);
      HWY_UNROLL(8)
      for (int i = 0; i < M; ++i) rows[i][j] = y[i];
    }
    const V bias = tile.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, tile.bias + k);
    const V low = hn::Set(d, clamp.low), high = hn::Set(d, clamp.high);
    HWY_UNROLL(8)
    for (int i = 0; i < M; ++i) {
      if (i >= tile.rows) break;
      V y[M];
      output_transform<M>(d, rows[i], y);
      HWY_UNROLL(8)
      for (int j = 0; j < M; ++j) {
        if (j >= tile.columns) break;
        const std::int64_t at = i * tile.line + j * tile.channels + k;
        V sum = hn::Add(y[j], bias);
        if (tile.residual != nullptr) sum = hn::Add(sum, hn::LoadU(d, tile.residual + at));
        // The bound first: x86's min and max return their second operand when one is NaN.
        hn::StoreU(hn::Min(high, hn::Max(low, sum)), d, tile.y + at);
      }
    }
  };
  over_channels(hn::ScalableTag<float>(), 0, tile.channels, body);
}

void input_any(int m, const WinogradInputTile& tile) {
  if (m == 2) return input_tile<2>(tile);
  if (m == 4) return input_tile<4>(tile);
  return input_tile<6>(tile);
}

void output_any(int m, const WinogradOutputTile& tile, const Activation& activation) {
  const FusedClamp clamp(activation);
  if (m == 2)
    output_tile<2>(tile, clamp);
  else if (m == 4)
    output_tile<4>(tile, clamp);
  else
    output_tile<6>(tile, clamp);
  if (!clamp.after) return;
  for (std::int64_t i = 0; i < tile.rows; ++i)
    activate_f32(activation, tile.y + i * tile.line, tile.columns * tile.channels);
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(input_any);
HWY_EXPORT(output_any);

void winograd_input(int m, const WinogradInputTile& tile) { HWY_DYNAMIC_DISPATCH(input_any)(m, tile); }

void winograd_output(int m, const WinogradOutputTile& tile, const Activation& activation) {
  HWY_DYNAMIC_DISPATCH(output_any)(m, tile, activation);
}

}  // namespace lenslet
#endif
