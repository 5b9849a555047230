#include "ops/elementwise/quantize_kernels.h"

#include <bit>
#include <limits>

#include "ops/elementwise/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/quantize_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
HWY_INLINE void quantize_kernel(const float* x, float scale, T zero_point, std::int64_t n, T* y) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> integers;
  const hn::Rebind<T, decltype(d)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto divisor = hn::Set(d, scale);
  // What T holds, before the zero point is added: rounding leaves these bounds where they are.
  const auto low = hn::Set(d, static_cast<float>(std::numeric_limits<T>::lowest() - zero_point));
  const auto high = hn::Set(d, static_cast<float>(std::numeric_limits<T>::max() - zero_point));
  // Of a float between 2^23 and 2^24 the last bit counts ones: the addition rounds to an integer, ties to even.
  constexpr float shift = 0x1.8p23F;
  const auto shift_bits = hn::Set(integers, std::bit_cast<std::int32_t>(shift) - zero_point);
  std::int64_t i = 0;
  constexpr std::int64_t together = 4;
  for (; i + together * lanes <= n; i += together * lanes) {
    auto known = hn::FirstN(d, hn::Lanes(d));
    for (std::int64_t k = i; k < i + together * lanes; k += lanes) {
      const auto exact = hn::Div(hn::LoadU(d, x + k), divisor);
      known = hn::And(known, hn::Eq(exact, exact));
      const auto near = hn::Min(hn::Max(exact, low), high);
      const auto moved = hn::Sub(hn::BitCast(integers, hn::Add(near, hn::Set(d, shift))), shift_bits);
      hn::StoreU(hn::DemoteTo(narrow, moved), narrow, y + k);
    }
    if (!hn::AllTrue(d, known))
      for (std::int64_t k = i; k < i + together * lanes; ++k) y[k] = Quantize<T>()(x[k], scale, zero_point);
  }
  for (; i < n; ++i) y[i] = Quantize<T>()(x[i], scale, zero_point);
}

void quantize_i8(const float* x, float scale, std::int8_t zero_point, std::int64_t n, std::int8_t* y) {
  quantize_kernel(x, scale, zero_point, n, y);
}
void quantize_u8(const float* x, float scale, std::uint8_t zero_point, std::int64_t n, std::uint8_t* y) {
  quantize_kernel(x, scale, zero_point, n, y);
}
void quantize_i16(const float* x, float scale, std::int16_t zero_point, std::int64_t n, std::int16_t* y) {
  quantize_kernel(x, scale, zero_point, n, y);
}
void quantize_u16(const float* x, float scale, std::uint16_t zero_point, std::int64_t n, std::uint16_t* y) {
  quantize_kernel(x, scale, zero_point, n, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(quantize_i8);
HWY_EXPORT(quantize_u8);
HWY_EXPORT(quantize_i16);
HWY_EXPORT(quantize_u16);

template <>
void quantize_run(const float* x, float scale, std::int8_t zero_point, std::int64_t n, std::int8_t* y) {
  HWY_DYNAMIC_DISPATCH(quantize_i8)(x, scale, zero_point, n, y);
}
template <>
void quantize_run(const float* x, float scale, std::uint8_t zero_point, std::int64_t n, std::uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(quantize_u8)(x, scale, zero_point, n, y);
}
template <>
void quantize_run(const float* x, float scale, std::int16_t zero_point, std::int64_t n, std::int16_t* y) {
  HWY_DYNAMIC_DISPATCH(quantize_i16)(x, scale, zero_point, n, y);
}
template <>
void quantize_run(const float* x, float scale, std::uint16_t zero_point, std::int64_t n, std::uint16_t* y) {
  HWY_DYNAMIC_DISPATCH(quantize_u16)(x, scale, zero_point, n, y);
}

}  // namespace lenslet
#endif
