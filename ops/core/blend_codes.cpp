#include "ops/core/blend_codes.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/core/blend_codes.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// `vectors` vectors of channels from c on, the last of which overlap others where channels end.
template <int vectors, typename Code>
HWY_INLINE void blend(const Code* x, const BlendTap* taps, std::int64_t count, std::int64_t c, std::int64_t channels,
                      const BlendedCodes& codes, std::uint8_t* y) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> words;
  const hn::Rebind<Code, decltype(d)> from;
  const hn::Rebind<std::uint8_t, decltype(d)> to;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t at[vectors];
  hn::Vec<decltype(d)> sums[vectors];
  for (int v = 0; v < vectors; ++v) {
    at[v] = std::min(c + v * lanes, channels - lanes);
    sums[v] = hn::Zero(d);
  }
  for (std::int64_t t = 0; t < count; ++t) {
    const auto weight = hn::Set(d, taps[t].weight);
    for (int v = 0; v < vectors; ++v) {
      const auto code = hn::PromoteTo(words, hn::LoadU(from, x + taps[t].offset + at[v]));
      sums[v] = hn::Add(sums[v], hn::Mul(weight, hn::ConvertTo(d, code)));
    }
  }
  const std::int32_t flip = codes.type == DType::i8 ? 128 : 0;
  const auto low = hn::Set(d, static_cast<float>(codes.least - codes.zero_point));
  const auto high = hn::Set(d, static_cast<float>(codes.most - codes.zero_point));
  for (int v = 0; v < vectors; ++v) {
    const auto step = hn::Mul(hn::Sub(sums[v], hn::Set(d, codes.zero)), hn::Set(d, codes.factor));
    const auto whole = hn::NearestInt(hn::Min(hn::Max(step, low), high));
    const auto bytes = hn::DemoteTo(to, hn::Add(whole, hn::Set(words, codes.zero_point + flip)));
    hn::StoreU(hn::Xor(bytes, hn::Set(to, static_cast<std::uint8_t>(flip))), to, y + at[v]);
  }
}

template <typename Code>
void blend_all(const void* from, const BlendTap* taps, std::int64_t count, std::int64_t channels,
               const BlendedCodes& codes, std::uint8_t* y) {
  const auto* const x = static_cast<const Code*>(from);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  std::int64_t c = 0;
  if (channels >= lanes) {
    for (; channels - c > lanes; c += 4 * lanes) blend<4>(x, taps, count, c, channels, codes, y);
    for (; c < channels; c += lanes) blend<1>(x, taps, count, c, channels, codes, y);
  }
  for (; c < channels; ++c) {
    float sum = 0;
    for (std::int64_t t = 0; t < count; ++t) sum += taps[t].weight * static_cast<float>(x[taps[t].offset + c]);
    y[c] = codes.code(sum);
  }
}

void blend_u8(const void* x, const BlendTap* taps, std::int64_t count, std::int64_t channels, const BlendedCodes& codes,
              std::uint8_t* y) {
  blend_all<std::uint8_t>(x, taps, count, channels, codes, y);
}
void blend_i8(const void* x, const BlendTap* taps, std::int64_t count, std::int64_t channels, const BlendedCodes& codes,
              std::uint8_t* y) {
  blend_all<std::int8_t>(x, taps, count, channels, codes, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(blend_u8);
HWY_EXPORT(blend_i8);

void blend_codes(DType type, const void* x, const BlendTap* taps, std::int64_t count, std::int64_t channels,
                 const BlendedCodes& codes, std::uint8_t* y) {
  if (type == DType::i8) return HWY_DYNAMIC_DISPATCH(blend_i8)(x, taps, count, channels, codes, y);
  HWY_DYNAMIC_DISPATCH(blend_u8)(x, taps, count, channels, codes, y);
}

}  // namespace lenslet
#endif
