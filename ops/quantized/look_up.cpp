// The lookup in a table of 256 bytes: vectors where an instruction looks up 128 of them, as AVX-512 VBMI has.

#include "ops/quantized/byte_kernels.h"

#define LENSLET_SIMD_BYTE_PRODUCTS
#include "base/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantized/look_up.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

#include "ops/core/simd/first_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

void look_up(const std::array<std::uint8_t, 256>& table, const std::uint8_t* x, std::int64_t n, std::uint8_t* y) {
  std::int64_t i = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint8_t> d;
  const std::uint8_t* const from = table.data();
  const auto t0 = hn::LoadU(d, from), t1 = hn::LoadU(d, from + 64), t2 = hn::LoadU(d, from + 128),
             t3 = hn::LoadU(d, from + 192);
  // By hand: Highway has it only from 1.1 on. The index's bit 7 is not read.
  const auto codes = [&](hn::Vec<decltype(d)> of) HWY_ATTR {
    const __m512i low = _mm512_permutex2var_epi8(t0.raw, of.raw, t1.raw);
    const __m512i high = _mm512_permutex2var_epi8(t2.raw, of.raw, t3.raw);
    return hn::Vec<decltype(d)>{_mm512_mask_blend_epi8(_mm512_movepi8_mask(of.raw), low, high)};
  };
  for (; i + 64 <= n; i += 64) hn::StoreU(codes(hn::LoadU(d, x + i)), d, y + i);
  const auto rest = static_cast<std::size_t>(n - i);
  if (rest != 0) store_first(codes(load_first(d, x + i, rest)), d, y + i, rest);
  return;
#endif
  for (; i + 4 <= n; i += 4) {
    const std::uint8_t a = table[x[i]], b = table[x[i + 1]], c = table[x[i + 2]], e = table[x[i + 3]];
    y[i] = a, y[i + 1] = b, y[i + 2] = c, y[i + 3] = e;
  }
  for (; i < n; ++i) y[i] = table[x[i]];
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
HWY_EXPORT(look_up);

void look_up_codes(const std::array<std::uint8_t, 256>& table, const std::uint8_t* x, std::int64_t n, std::uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(look_up)(table, x, n, y);
}

}  // namespace lenslet
#endif
