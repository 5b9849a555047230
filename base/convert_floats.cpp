#include "base/convert_floats.h"

#include <limits>

#include "base/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/convert_floats.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "base/simd/bf16-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using Halves = hn::Rebind<hwy::float16_t, D>;

/// f(i) for every whole vector, then element by element.
template <typename To, typename From, class F>
HWY_INLINE void each_vector(const From* x, To* y, std::int64_t count, const F& f) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(i);
  for (; i < count; ++i) y[i] = convert<To>(x[i]);
}

// Saturates: NaN gives 0. Floats represent the lower end exactly, and 2^31 as the upper one of int32.
template <typename T>
HWY_INLINE auto saturated(V x) {
  const D d;
  const hn::RebindToSigned<D> integers;
  const V known = hn::IfThenElseZero(hn::Eq(x, x), x);
  const V low = hn::Max(known, hn::Set(d, static_cast<float>(std::numeric_limits<T>::min())));
  const V end = hn::Set(d, static_cast<float>(std::numeric_limits<T>::max()));
  if constexpr (sizeof(T) == 4) {
    const auto above = hn::RebindMask(integers, hn::Ge(low, end));
    return hn::IfThenElse(above, hn::Set(integers, std::numeric_limits<T>::max()),
                          hn::ConvertTo(integers, hn::IfThenZeroElse(hn::Ge(low, end), low)));
  } else {
    return hn::ConvertTo(integers, hn::Min(low, end));
  }
}

/// By way of int32 where all lanes fit; other vectors element by element.
void to_i64(const float* x, std::int64_t* y, std::int64_t count) {
  const hn::ScalableTag<std::int64_t> wide;
  const hn::Rebind<float, decltype(wide)> d;
  const hn::Rebind<std::int32_t, decltype(wide)> integers;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(wide));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    if (hn::AllTrue(d, hn::Lt(hn::Abs(v), hn::Set(d, 0x1p31F))))
      hn::StoreU(hn::PromoteTo(wide, hn::ConvertTo(integers, v)), wide, y + i);
    else
      for (std::int64_t j = i; j < i + lanes; ++j) y[j] = convert<std::int64_t>(x[j]);
  }
  for (; i < count; ++i) y[i] = convert<std::int64_t>(x[i]);
}

// Without an instruction, Highway's conversion to half is wrong for subnormals and infinities.
constexpr bool halves_are_exact = HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2);

bool convert_floats_kernel(DType from, const void* source, DType to, void* target, std::int64_t count) {
  const D d;
  const auto integers = [&]<typename T>(T* y) HWY_ATTR {
    const auto* x = static_cast<const float*>(source);
    each_vector(x, y, count, [=](std::int64_t i) HWY_ATTR {
      const auto values = saturated<T>(hn::LoadU(D(), x + i));
      const hn::Rebind<T, D> narrow;
      if constexpr (sizeof(T) == 4)
        hn::StoreU(values, narrow, y + i);
      else
        hn::StoreU(hn::DemoteTo(narrow, values), narrow, y + i);
    });
    return true;
  };
  if (halves_are_exact && from == DType::f16 && to == DType::f32) {
    const auto* x = static_cast<const Float16*>(source);
    auto* y = static_cast<float*>(target);
    each_vector(x, y, count, [=](std::int64_t i) HWY_ATTR {
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(Halves(), reinterpret_cast<const hwy::float16_t*>(x + i))), d, y + i);
    });
    return true;
  }
  if (from == DType::bf16 && to == DType::f32) {
    const auto* x = static_cast<const BFloat16*>(source);
    auto* y = static_cast<float*>(target);
    each_vector(x, y, count, [=](std::int64_t i) HWY_ATTR { store(quiet(D(), load(D(), x + i)), D(), y + i); });
    return true;
  }
  const hn::Rebind<std::int32_t, D> whole;
  const hn::Rebind<std::uint8_t, D> bytes;
  if (from == DType::boolean && to == DType::f32) {  // a byte that is not 0 is true
    const auto* x = static_cast<const std::uint8_t*>(source);
    auto* y = static_cast<float*>(target);
    const Convert<float, bool> one_by_one;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      const auto known = hn::Ne(hn::PromoteTo(whole, hn::LoadU(bytes, x + i)), hn::Zero(whole));
      hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, known), hn::Set(d, 1.0F)), d, y + i);
    }
    for (; i < count; ++i) y[i] = one_by_one(x[i]);
    return true;
  }
  if (from != DType::f32) return false;
  if (to == DType::bf16) {
    const auto* x = static_cast<const float*>(source);
    auto* y = static_cast<BFloat16*>(target);
    each_vector(x, y, count, [=](std::int64_t i) HWY_ATTR { store(load(D(), x + i), D(), y + i); });
    return true;
  }
  if (to == DType::boolean) {
    const auto* x = static_cast<const float*>(source);
    auto* y = static_cast<std::uint8_t*>(target);
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      // Ne is false for NaN.
      const auto known = hn::RebindMask(whole, hn::Not(hn::Eq(hn::LoadU(d, x + i), hn::Zero(d))));
      hn::StoreU(hn::DemoteTo(bytes, hn::IfThenElseZero(known, hn::Set(whole, 1))), bytes, y + i);
    }
    for (; i < count; ++i) y[i] = x[i] != 0 ? 1 : 0;
    return true;
  }
  if (to == DType::i32) return integers(static_cast<std::int32_t*>(target));
  if (to == DType::i64) {
    to_i64(static_cast<const float*>(source), static_cast<std::int64_t*>(target), count);
    return true;
  }
  if (to == DType::i8) return integers(static_cast<std::int8_t*>(target));
  if (to == DType::u8) return integers(static_cast<std::uint8_t*>(target));
  if (!halves_are_exact || to != DType::f16) return false;
  const auto* x = static_cast<const float*>(source);
  auto* y = static_cast<Float16*>(target);
  each_vector(x, y, count, [=](std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::DemoteTo(Halves(), hn::LoadU(d, x + i)), Halves(), reinterpret_cast<hwy::float16_t*>(y + i));
  });
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(convert_floats_kernel);

bool convert_floats(DType from, const void* x, DType to, void* y, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(convert_floats_kernel)(from, x, to, y, count);
}

}  // namespace lenslet
#endif
