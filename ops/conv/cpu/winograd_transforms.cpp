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

/// Multiplications by 1 cost nothing.
template <class D>
struct VectorMath {
  using V = hn::Vec<D>;
  D d;
  HWY_INLINE V add(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V sub(V a, V b) const { return hn::Sub(a, b); }
  HWY_INLINE V times(float coefficient, V x) const {
    return coefficient == 1 ? x : coefficient == -1 ? hn::Neg(x) : hn::Mul(hn::Set(d, coefficient), x);
  }
  HWY_INLINE V plus(float coefficient, V x, V sum) const {
    if (coefficient == 1) return add(sum, x);
    if (coefficient == -1) return sub(sum, x);
    return hn::MulAdd(hn::Set(d, coefficient), x, sum);
  }
};

#undef WINOGRAD_INLINE
#define WINOGRAD_INLINE HWY_INLINE
#include "ops/conv/winograd_transform-inl.h"

template <int M>
void input_tile(const WinogradInputTile& tile) {
  constexpr int alpha = winograd_alpha<M>;
  const auto body = [&](auto d, std::int64_t c) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    V rows[alpha][alpha];  // B^T d
    HWY_UNROLL(8)
    for (int j = 0; j < alpha; ++j) {
      V x[alpha], y[alpha];
      HWY_UNROLL(8)
      for (int i = 0; i < alpha; ++i) x[i] = hn::LoadU(d, tile.pixels[i * alpha + j] + c);
      input_transform<M>(VectorMath<decltype(d)>{d}, x, y);
      HWY_UNROLL(8)
      for (int i = 0; i < alpha; ++i) rows[i][j] = y[i];
    }
    float* v = tile.v + c;
    HWY_UNROLL(8)
    for (int i = 0; i < alpha; ++i) {
      V y[alpha];
      input_transform<M>(VectorMath<decltype(d)>{d}, rows[i], y);
      HWY_UNROLL(8)
      for (int j = 0; j < alpha; ++j) hn::StoreU(y[j], d, v + (i * alpha + j) * tile.stride);
    }
  };
  over_channels(hn::ScalableTag<float>(), 0, tile.channels, body);
}

template <int M>
void output_tile(const WinogradOutputTile& tile, const FusedClamp& clamp) {
  constexpr int alpha = winograd_alpha<M>;
  const auto body = [&](auto d, std::int64_t k) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    V rows[M][alpha];  // A^T M
    const float* products = tile.products + k;
    HWY_UNROLL(8)
    for (int j = 0; j < alpha; ++j) {
      V x[alpha], y[M];
      HWY_UNROLL(8)
      for (int i = 0; i < alpha; ++i) x[i] = hn::LoadU(d, products + (i * alpha + j) * tile.stride);
      output_transform<M>(VectorMath<decltype(d)>{d}, x, y);
      HWY_UNROLL(8)
      for (int i = 0; i < M; ++i) rows[i][j] = y[i];
    }
    const V bias = tile.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, tile.bias + k);
    const V low = hn::Set(d, clamp.low), high = hn::Set(d, clamp.high);
    if (tile.max_pool) {
      HWY_UNROLL(8)
      for (int i = 0; i < M; i += 2) {
        if (i + 1 >= tile.rows) break;
        V y[2][M];
        output_transform<M>(VectorMath<decltype(d)>{d}, rows[i], y[0]);
        output_transform<M>(VectorMath<decltype(d)>{d}, rows[i + 1], y[1]);
        HWY_UNROLL(8)
        for (int j = 0; j < M; j += 2) {
          if (j + 1 >= tile.columns) break;
          const auto stored = [&](V sum) HWY_ATTR { return at_most(high, at_least(low, hn::Add(sum, bias))); };
          const V upper = larger(stored(y[0][j]), stored(y[0][j + 1]));
          const V lower = larger(stored(y[1][j]), stored(y[1][j + 1]));
          hn::StoreU(larger(upper, lower), d, tile.y + i / 2 * tile.line + j / 2 * tile.pixel + k);
        }
      }
      return;
    }
    HWY_UNROLL(8)
    for (int i = 0; i < M; ++i) {
      if (i >= tile.rows) break;
      V y[M];
      output_transform<M>(VectorMath<decltype(d)>{d}, rows[i], y);
      HWY_UNROLL(8)
      for (int j = 0; j < M; ++j) {
        if (j >= tile.columns) break;
        const std::int64_t at = i * tile.line + j * tile.pixel + k;
        V sum = hn::Add(y[j], bias);
        if (tile.residual != nullptr) sum = hn::Add(sum, hn::LoadU(d, tile.residual + at));
        hn::StoreU(at_most(high, at_least(low, sum)), d, tile.y + at);
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
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    float* const row = tile.y + i * tile.line;
    if (tile.pixel == tile.channels) {
      activate_f32(activation, row, tile.columns * tile.channels);
    } else {
      for (std::int64_t j = 0; j < tile.columns; ++j) activate_f32(activation, row + j * tile.pixel, tile.channels);
    }
  }
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
