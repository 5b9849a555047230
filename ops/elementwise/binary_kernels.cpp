#include "ops/elementwise/binary_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/binary_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/core/simd/activation-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// One run; f works on vectors. The remainder takes half a vector, then single elements.
template <class Tag, class F>
HWY_INLINE void run_part(Tag d, BinaryOperand a, BinaryOperand b, float* y, std::int64_t& i, std::int64_t n,
                         const F& f) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (a.stride == 1 && b.stride == 1) {
    for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, a.at + i), hn::LoadU(d, b.at + i)), d, y + i);
  } else if (a.stride == 1 && b.stride == 0) {
    const auto second = hn::Set(d, *b.at);
    for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, a.at + i), second), d, y + i);
  } else if (a.stride == 0 && b.stride == 1) {
    const auto first = hn::Set(d, *a.at);
    for (; i + lanes <= n; i += lanes) hn::StoreU(f(first, hn::LoadU(d, b.at + i)), d, y + i);
  }
}
template <class F>
HWY_INLINE void run(BinaryOperand a, BinaryOperand b, float* y, std::int64_t y_row, std::int64_t rows, std::int64_t n,
                    const F& f) {
  const D d;
  const hn::CappedTag<float, (hn::MaxLanes(D()) > 4 ? hn::MaxLanes(D()) / 2 : 1)> half;
  const hn::CappedTag<float, 1> one;
  for (; rows > 0; --rows, a.at += a.row, b.at += b.row, y += y_row) {
    std::int64_t i = 0;
    run_part(d, a, b, y, i, n, f);
    run_part(half, a, b, y, i, n, f);
    for (; i < n; ++i)
      hn::StoreU(f(hn::LoadU(one, a.at + i * a.stride), hn::LoadU(one, b.at + i * b.stride)), one, y + i);
  }
}

// f on each pair of lanes, where there is no vector version.
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

void binary_kernel(BinaryKind kind, const BinaryOperand& a, const BinaryOperand& b, float* y, std::int64_t y_row,
                   std::int64_t rows, std::int64_t n) {
  switch (kind) {
#define LENSLET_CASE(NAME, VERSION, MOST, TYPES, NOTES, FUNCTION, ...) \
  case BinaryKind::NAME:                                               \
    return run(a, b, y, y_row, rows, n, [](auto u, [[maybe_unused]] auto v) HWY_ATTR { return __VA_ARGS__; });
    LENSLET_BINARY_KINDS(LENSLET_CASE)
    LENSLET_BINARY_VARIANTS(LENSLET_CASE)
#undef LENSLET_CASE
    case BinaryKind::Pow:
      for (std::int64_t row = 0; row < rows; ++row) {
        const float *base = a.at + row * a.row, *exponent = b.at + row * b.row;
        float* to = y + row * y_row;
        // The exponent is nearly always a constant, for a square or a root.
        const BinaryOperand square{base, 0, a.stride};
        if (b.stride == 0 && *exponent == 2.0f)
          run(square, square, to, 0, 1, n, [](auto u, auto v) HWY_ATTR { return hn::Mul(u, v); });
        else
          for (std::int64_t i = 0; i < n; ++i) to[i] = std::pow(base[i * a.stride], exponent[i * b.stride]);
      }
      return;
  }
}

void scale_shift_kernel(const float* x, std::int64_t x_row, const float* scale, const float* shift, std::int64_t stride,
                        const Activation& activation, float* y, std::int64_t rows, std::int64_t n) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  with_activation(activation, [&](auto act) HWY_ATTR {
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* from = x + row * x_row;
      float* to = y + row * n;
      std::int64_t i = 0;
      if (stride == 1) {
        for (; i + lanes <= n; i += lanes)
          hn::StoreU(act(d, hn::MulAdd(hn::LoadU(d, from + i), hn::LoadU(d, scale + i), hn::LoadU(d, shift + i))), d,
                     to + i);
      } else {
        const V s = hn::Set(d, *scale), t = hn::Set(d, *shift);
        for (; i + lanes <= n; i += lanes) hn::StoreU(act(d, hn::MulAdd(hn::LoadU(d, from + i), s, t)), d, to + i);
      }
      for (; i < n; ++i)
        hn::StoreU(act(one, hn::MulAdd(hn::LoadU(one, from + i), hn::LoadU(one, scale + i * stride),
                                       hn::LoadU(one, shift + i * stride))),
                   one, to + i);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(binary_kernel);
HWY_EXPORT(scale_shift_kernel);

void apply_binary(BinaryKind kind, const BinaryOperand& a, const BinaryOperand& b, float* y, std::int64_t y_row,
                  std::int64_t rows, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(binary_kernel)(kind, a, b, y, y_row, rows, n);
}

void apply_scale_shift(const float* x, std::int64_t x_row, const float* scale, const float* shift, std::int64_t stride,
                       const Activation& activation, float* y, std::int64_t rows, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(scale_shift_kernel)(x, x_row, scale, shift, stride, activation, y, rows, n);
}

}  // namespace lenslet
#endif
