#include "ops/quantized/integer_depthwise.h"

#include <algorithm>

#include "base/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantized/integer_depthwise.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls f(tag, i) for vectors that cover [0, count) exactly; the last one may overlap the previous one.
template <class D, class F>
HWY_INLINE void over_line(D d, std::int64_t count, const F& f) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (count >= lanes) {
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) f(d, i);
    if (i < count) f(d, count - lanes);
  } else if constexpr (hn::MaxLanes(D()) > 1) {
    over_line(hn::CappedTag<float, hn::MaxLanes(D()) / 2>(), count, f);
  }
}

void widen(const IntegerOperand& of, int zero, const std::uint8_t* from, std::int64_t step, std::int64_t count,
           float* to) {
  // Flipping a signed byte's sign bit adds 128.
  const int flip = of.is_signed ? 0x80 : 0;
  const auto store = [&](auto d, auto bytes, std::int64_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    const auto flipped = hn::Xor(hn::PromoteTo(di, bytes), hn::Set(di, flip));
    hn::StoreU(hn::ConvertTo(d, hn::Sub(flipped, hn::Set(di, flip + zero))), d, to + i);
  };
  if (step == 1)
    return over_line(hn::ScalableTag<float>(), count, [&](auto d, std::int64_t i) HWY_ATTR {
      store(d, hn::LoadU(hn::Rebind<std::uint8_t, decltype(d)>(), from + i), i);
    });
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if (step == 2 && count > 1) {
    // The last element's pair may lie behind the image.
    i = count - 1;
    over_line(hn::ScalableTag<float>(), i, [&](auto d, std::int64_t at) HWY_ATTR {
      const hn::Rebind<std::uint16_t, decltype(d)> d16;
      const auto pairs = hn::BitCast(d16, hn::LoadU(hn::Repartition<std::uint8_t, decltype(d16)>(), from + 2 * at));
      store(d, hn::And(pairs, hn::Set(d16, std::uint16_t{0xFF})), at);
    });
  }
#endif
  for (; i < count; ++i) to[i] = static_cast<float>(of.widened(from[i * step]) - zero);
}

void widen_parts(const ApartPlane& plane, std::int64_t begin, std::int64_t end, const IntegerOperand& of, int zero,
                 const std::uint8_t* image, float* to) {
  take_apart(plane, begin, end, image, 0.0F, to,
             [&](const std::uint8_t* from, std::int64_t step, std::int64_t count, float* line)
                 HWY_ATTR { widen(of, zero, from, step, count, line); });
}

/// A vector of sums in each of `lines` lines.
template <int lines>
HWY_INLINE void sum_block(const IntegerTaps& of, const float* x, std::int64_t columns, std::int32_t* sums) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  hn::Vec<decltype(d)> sum[lines];
  for (int v = 0; v < lines; ++v) sum[v] = hn::Zero(d);
  for (std::int64_t t = 0; t < of.taps; ++t) {
    const auto weight = hn::Set(d, of.weights[t]);
    const float* const at = x + of.at[t];
    for (int v = 0; v < lines; ++v) sum[v] = hn::MulAdd(hn::LoadU(d, at + v * of.wide), weight, sum[v]);
  }
  for (int v = 0; v < lines; ++v) hn::StoreU(hn::ConvertTo(di, sum[v]), di, sums + v * columns);
}

template <int most>
HWY_INLINE void sum_lines(const IntegerTaps& of, const float* x, std::int64_t lines, std::int64_t columns,
                          std::int32_t* sums) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  for (; lines >= most; lines -= most, x += most * of.wide, sums += most * columns) {
    std::int64_t j = 0;
    for (; j + lanes < columns; j += lanes) sum_block<most>(of, x + j, columns, sums + j);
    // The last vector overlaps the previous one; the next line overwrites what a short line's writes beyond its end.
    j = std::max<std::int64_t>(0, columns - lanes);
    sum_block<most>(of, x + j, columns, sums + j);
  }
  if constexpr (most > 1) sum_lines<most / 2>(of, x, lines, columns, sums);
}

void sum_taps(const IntegerTaps& of, std::int64_t lines, std::int64_t columns, std::int32_t* sums) {
  sum_lines<4>(of, of.x, lines, columns, sums);
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
HWY_EXPORT(widen);
HWY_EXPORT(widen_parts);
HWY_EXPORT(sum_taps);

void widen_integers(const IntegerOperand& of, int zero, const std::uint8_t* from, std::int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(widen)(of, zero, from, 1, count, to);
}

void widen_integers(const ApartPlane& plane, std::int64_t begin, std::int64_t end, const IntegerOperand& of, int zero,
                    const std::uint8_t* image, float* to) {
  HWY_DYNAMIC_DISPATCH(widen_parts)(plane, begin, end, of, zero, image, to);
}

void sum_integer_taps(const IntegerTaps& of, std::int64_t lines, std::int64_t columns, std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(sum_taps)(of, lines, columns, sums);
}

}  // namespace lenslet
#endif
