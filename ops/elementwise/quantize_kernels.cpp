#include "ops/elementwise/quantize_kernels.h"

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
  const auto zero = hn::Set(integers, zero_point);
  // Beyond it every zero point leaves T. DemoteTo bytes goes by way of 16 bits, and is wrong for what those do not
  // hold.
  const auto far = hn::Set(d, sizeof(T) == 1 ? 0x1p14F : 0x1p17F);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto exact = hn::Div(hn::LoadU(d, x + i), divisor);
    const auto known = hn::Eq(exact, exact);
    const auto near = hn::Min(hn::Max(hn::IfThenElseZero(known, exact), hn::Neg(far)), far);
    const auto moved = hn::Add(hn::NearestInt(near), zero);
    hn::StoreU(hn::DemoteTo(narrow, hn::IfThenElseZero(hn::RebindMask(integers, known), moved)), narrow, y + i);
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
