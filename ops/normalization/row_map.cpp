#include "ops/normalization/row_map.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/normalization/row_map.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/over_channels-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> mapped(D d, const RowMap& map, const float* x) {
  return hn::Add(hn::Mul(hn::Sub(hn::LoadU(d, x), hn::Set(d, map.center)), hn::Set(d, map.gain)), hn::Set(d, map.rest));
}

void map_row_kernel(const RowMap& map, const float* x, std::int64_t count, float* y) {
  over_channels(hn::ScalableTag<float>(), 0, count,
                [=](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(mapped(d, map, x + i), d, y + i); });
}

void map_row_scaled_kernel(const RowMap& map, const float* scale, const float* bias, const float* x, std::int64_t count,
                           float* y) {
  const auto scaled = [=](auto d, std::int64_t i)
                          HWY_ATTR { return hn::Mul(mapped(d, map, x + i), hn::LoadU(d, scale + i)); };
  if (bias == nullptr) {
    over_channels(hn::ScalableTag<float>(), 0, count,
                  [=](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(hn::Add(scaled(d, i), hn::Zero(d)), d, y + i); });
  } else {
    over_channels(hn::ScalableTag<float>(), 0, count, [=](auto d, std::int64_t i) HWY_ATTR {
      hn::StoreU(hn::Add(scaled(d, i), hn::LoadU(d, bias + i)), d, y + i);
    });
  }
}

void activate_row_kernel(const Activation& activation, float* y, std::int64_t count) {
  activate_f32(activation, y, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(map_row_kernel);
HWY_EXPORT(map_row_scaled_kernel);
HWY_EXPORT(activate_row_kernel);

void map_row(const RowMap& map, const float* x, std::int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(map_row_kernel)(map, x, count, y);
}
void map_row(const RowMap& map, const float* scale, const float* bias, const float* x, std::int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(map_row_scaled_kernel)(map, scale, bias, x, count, y);
}
void activate_row(const Activation& activation, float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(activate_row_kernel)(activation, y, count);
}

}  // namespace lenslet
#endif
