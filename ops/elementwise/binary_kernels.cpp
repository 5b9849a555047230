#include "ops/elementwise/binary_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/binary_kernels.cpp"
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

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// f works on vectors; single elements go through a one-lane vector of the same function.
template <class F>
HWY_INLINE void run(const float* a, std::int64_t sa, const float* b, std::int64_t sb, float* y, std::int64_t n,
                    const F& f) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  if (sa == 1 && sb == 1) {
    for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);
  } else if (sa == 1 && sb == 0) {
    const V second = hn::Set(d, *b);
    for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, a + i), second), d, y + i);
  } else if (sa == 0 && sb == 1) {
    const V first = hn::Set(d, *a);
    for (; i + lanes <= n; i += lanes) hn::StoreU(f(first, hn::LoadU(d, b + i)), d, y + i);
  }
  for (; i < n; ++i) hn::StoreU(f(hn::LoadU(one, a + i * sa), hn::LoadU(one, b + i * sb)), one, y + i);
}

// f of each pair of lanes, where there is no vector of it.
template <class U, class F>
HWY_INLINE U each(U u, U v, const F& f) {
  const hn::DFromV<U> d;
  HWY_ALIGN float x[hn::MaxLanes(d)];
  HWY_ALIGN float y[hn::MaxLanes(d)];
  hn::Store(u, d, x);
  hn::Store(v, d, y);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) x[i] = f(x[i], y[i]);
  return hn::Load(d, x);
}

void binary_kernel(BinaryKind kind, const float* a, std::int64_t sa, const float* b, std::int64_t sb, float* y,
                   std::int64_t n) {
  switch (kind) {
#define LENSLET_CASE(NAME, VERSION, MOST, TYPES, NOTES, FUNCTION, ...) \
  case BinaryKind::NAME:                                               \
    return run(a, sa, b, sb, y, n, [](auto u, [[maybe_unused]] auto v) HWY_ATTR { return __VA_ARGS__; });
    LENSLET_BINARY_KINDS(LENSLET_CASE)
    LENSLET_BINARY_VARIANTS(LENSLET_CASE)
#undef LENSLET_CASE
    case BinaryKind::Pow:
      // Nearly always a square or a root with a constant exponent.
      if (sb == 0 && *b == 2.0f) return run(a, sa, a, sa, y, n, [](auto u, auto v) HWY_ATTR { return hn::Mul(u, v); });
      for (std::int64_t i = 0; i < n; ++i) y[i] = std::pow(a[i * sa], b[i * sb]);
      return;
  }
}

void scale_shift_kernel(const float* x, const float* scale, const float* shift, std::int64_t stride, float* y,
                        std::int64_t n) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  if (stride == 1) {
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, scale + i), hn::LoadU(d, shift + i)), d, y + i);
  } else {
    const V s = hn::Set(d, *scale), t = hn::Set(d, *shift);
    for (; i + lanes <= n; i += lanes) hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), s, t), d, y + i);
  }
  for (; i < n; ++i)
    hn::StoreU(
        hn::MulAdd(hn::LoadU(one, x + i), hn::LoadU(one, scale + i * stride), hn::LoadU(one, shift + i * stride)), one,
        y + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(binary_kernel);
HWY_EXPORT(scale_shift_kernel);

void apply_binary(BinaryKind kind, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
                  float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(binary_kernel)(kind, a, a_stride, b, b_stride, y, n);
}

void apply_scale_shift(const float* x, const float* scale, const float* shift, std::int64_t stride, float* y,
                       std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(scale_shift_kernel)(x, scale, shift, stride, y, n);
}

}  // namespace lenslet
#endif
