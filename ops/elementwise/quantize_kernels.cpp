#include "ops/elementwise/quantize_kernels.h"

#include <bit>
#include <limits>
#include <type_traits>

#include "ops/elementwise/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/quantize_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/core/simd/divide-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T, typename Divide>
HWY_INLINE void quantize_by(const Divide& divide, const float* x, float scale, T zero_point, std::int64_t n, T* y) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> integers;
  const hn::RebindToUnsigned<decltype(d)> bits;
  const hn::Rebind<std::make_unsigned_t<T>, decltype(d)> narrow;
  auto* const to = reinterpret_cast<std::make_unsigned_t<T>*>(y);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // The quotients of these bounds, and all beyond, round to the ends of T.
  const auto low = hn::Set(d, scale * static_cast<float>(std::numeric_limits<T>::lowest() - zero_point));
  const auto high = hn::Set(d, scale * static_cast<float>(std::numeric_limits<T>::max() - zero_point));
  // A float between 2^23 and 2^24 has units of one: the addition rounds to an integer, ties to even.
  constexpr float shift = 0x1.8p23F;
  const auto shift_bits = hn::Set(integers, std::bit_cast<std::int32_t>(shift) - zero_point);
  std::int64_t i = 0;
  constexpr std::int64_t together = 4;
  const auto zero = hn::Zero(d);
  for (; i + together * lanes <= n; i += together * lanes) {
    auto odd = zero;  // stays 0 while all are finite
    for (std::int64_t k = i; k < i + together * lanes; k += lanes) {
      const auto given = hn::LoadU(d, x + k);
      odd = hn::MulAdd(given, zero, odd);
      const auto quotient = divide(hn::Min(hn::Max(given, low), high));
      const auto moved = hn::Sub(hn::BitCast(integers, hn::Add(quotient, hn::Set(d, shift))), shift_bits);
      hn::StoreU(hn::TruncateTo(narrow, hn::BitCast(bits, moved)), narrow, to + k);
    }
    if (!hn::AllTrue(d, hn::Eq(odd, zero)))
      for (std::int64_t k = i; k < i + together * lanes; ++k) y[k] = Quantize<T>()(x[k], scale, zero_point);
  }
  for (; i < n; ++i) y[i] = Quantize<T>()(x[i], scale, zero_point);
}

template <typename T>
HWY_INLINE void quantize_kernel(const float* x, float scale, T zero_point, std::int64_t n, T* y) {
  if (ByReciprocal::serves(scale)) return quantize_by(ByReciprocal{scale}, x, scale, zero_point, n, y);
  if (scale > 0) return quantize_by(ByDivision{scale}, x, scale, zero_point, n, y);
  for (std::int64_t i = 0; i < n; ++i) y[i] = Quantize<T>()(x[i], scale, zero_point);
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
