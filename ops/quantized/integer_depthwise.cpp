#include "ops/quantized/integer_depthwise.h"

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

void widen(const IntegerOperand& of, int zero, const std::uint8_t* from, std::int64_t step, std::int64_t count,
           float* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Flipping a signed byte's sign bit adds 128.
  const int flip = of.is_signed ? 0x80 : 0;
  std::int64_t i = 0;
  if (step == 1) {
    const auto flips = hn::Set(d8, static_cast<std::uint8_t>(flip));
    const auto less = hn::Set(di, flip + zero);
    for (; i + lanes <= count; i += lanes) {
      const auto bytes = hn::PromoteTo(di, hn::Xor(hn::LoadU(d8, from + i), flips));
      hn::StoreU(hn::ConvertTo(d, hn::Sub(bytes, less)), d, to + i);
    }
  }
  for (; i < count; ++i) to[i] = static_cast<float>(of.widened(from[i * step]) - zero);
}

template <int vectors>
HWY_INLINE void sum_block(const IntegerTaps& of, const float* x, std::int32_t* sums) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[vectors];
  for (int v = 0; v < vectors; ++v) sum[v] = hn::Zero(d);
  for (std::int64_t t = 0; t < of.taps; ++t) {
    const auto weight = hn::Set(d, of.weights[t]);
    const float* const at = x + of.at[t];
    for (int v = 0; v < vectors; ++v) sum[v] = hn::MulAdd(hn::LoadU(d, at + v * lanes), weight, sum[v]);
  }
  for (int v = 0; v < vectors; ++v) hn::StoreU(hn::ConvertTo(di, sum[v]), di, sums + v * lanes);
}

void sum_taps(const IntegerTaps& of, std::int64_t lines, std::int64_t columns, std::int32_t* sums) {
  constexpr int block = 4;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  // The next line overwrites what a line's last vector writes beyond its end.
  for (std::int64_t line = 0; line < lines; ++line, sums += columns) {
    const float* const x = of.x + line * of.wide;
    std::int64_t j = 0;
    for (; j + block * lanes <= columns; j += block * lanes) sum_block<block>(of, x + j, sums + j);
    for (; j < columns; j += lanes) sum_block<1>(of, x + j, sums + j);
  }
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
HWY_EXPORT(widen);
HWY_EXPORT(sum_taps);

void widen_integers(const IntegerOperand& of, int zero, const std::uint8_t* from, std::int64_t step, std::int64_t count,
                    float* to) {
  HWY_DYNAMIC_DISPATCH(widen)(of, zero, from, step, count, to);
}

void sum_integer_taps(const IntegerTaps& of, std::int64_t lines, std::int64_t columns, std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(sum_taps)(of, lines, columns, sums);
}

}  // namespace lenslet
#endif
