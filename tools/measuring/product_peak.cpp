// Products of bytes and of bfloat16 in registers: by AMX tiles, else by AVX-512 VNNI or AVX512_BF16, else bytes by
// pairs of 16-bit integers.
#include <cstdint>
#include <type_traits>

#include "tools/measuring/peak.h"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/measuring/product_peak.cpp"
#include <hwy/foreach_target.h>  // compiles the code below once for each target

#include <hwy/highway.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace lenslet::tool::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains, as fma_round() has. Returns the operations done.
double product_round(std::size_t rounds, std::int32_t* sink) {
  const hn::ScalableTag<std::int32_t> d;
  constexpr int count = 12;
  using V = hn::Vec<decltype(d)>;
  V chains[count];
  for (int i = 0; i < count; ++i) chains[i] = hn::Iota(d, i);
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
  constexpr double products = 4;
  const V x = hn::Set(d, 0x01020304), w = hn::Set(d, 0x05060708);
  const auto step = [&](V& chain) HWY_ATTR {
    asm volatile("vpdpbusd %2, %1, %0" : "+v"(chain.raw) : "v"(x.raw), "v"(w.raw));
  };
#elif HWY_TARGET == HWY_SCALAR
  constexpr double products = 1;
  const auto step = [](V& chain) { chain = hn::MulAdd(chain, chain, chain); };
#else
  constexpr double products = 2;
  const hn::Repartition<std::int16_t, decltype(d)> pairs;
  const auto x = hn::Set(pairs, 3), w = hn::Set(pairs, 5);
  V unused = hn::Zero(d);
  const auto step = [&](V& chain) HWY_ATTR {
    chain = hn::ReorderWidenMulAccumulate(d, hn::Xor(x, hn::BitCast(pairs, chain)), w, chain, unused);
  };
#endif
  for (std::size_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(count)
    for (int i = 0; i < count; ++i) step(chains[i]);
  }
  for (int i = 1; i < count; ++i) chains[0] = hn::Add(chains[0], chains[i]);
  *sink = hn::GetLane(chains[0]);
  return 2 * products * count * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace lenslet::tool::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet::tool {
namespace {

HWY_EXPORT(product_round);

#ifdef __x86_64__
template <bool brains>
__attribute__((target("amx-tile,amx-int8,amx-bf16"))) double tile_round(std::size_t rounds) {
  struct alignas(64) {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("" : : "r"(&config) : "memory");  // GCC takes it that the next instruction reads eight bytes
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (std::size_t round = 0; round < rounds; ++round) {
    if constexpr (brains) {
      _tile_dpbf16ps(0, 4, 5);
      _tile_dpbf16ps(1, 4, 5);
      _tile_dpbf16ps(2, 4, 5);
      _tile_dpbf16ps(3, 4, 5);
    } else {
      _tile_dpbusd(0, 4, 5);
      _tile_dpbusd(1, 4, 5);
      _tile_dpbusd(2, 4, 5);
      _tile_dpbusd(3, 4, 5);
    }
  }
  _tile_release();
  return 2.0 * 4 * 16 * 16 * (brains ? 32 : 64) * static_cast<double>(rounds);
}

__attribute__((target("avx512f,avx512bf16"))) double brain_round(std::size_t rounds) {
  constexpr int count = 12;
  __m512 chains[count] = {};
  const __m512i one = _mm512_set1_epi16(0x3F80);
  for (std::size_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(count)
    for (int i = 0; i < count; ++i) asm volatile("vdpbf16ps %1, %1, %0" : "+v"(chains[i]) : "v"(one));
  }
  return 2.0 * 2 * count * 16 * static_cast<double>(rounds);
}
#endif

}  // namespace

bool has_bf16_products() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

double bf16_peak([[maybe_unused]] int threads, [[maybe_unused]] bool by_tiles) {
#ifdef __x86_64__
  if (by_tiles) return best_rate(threads, 5, [](int) { return tile_round<true>(200'000); });
  if (has_bf16_products()) return best_rate(threads, 5, [](int) { return brain_round(2'000'000); });
#endif
  return 0;
}

double int8_peak(int threads, [[maybe_unused]] bool by_tiles) {
#ifdef __x86_64__
  if (by_tiles) return best_rate(threads, 5, [](int) { return tile_round<false>(200'000); });
#endif
  return best_rate(threads, 5, [](int) {
    std::int32_t sink = 0;
    const double done = HWY_DYNAMIC_DISPATCH(product_round)(2'000'000, &sink);
    return sink == 1 ? done : done + 0 * sink;  // keeps the work alive
  });
}

}  // namespace lenslet::tool
#endif  // HWY_ONCE
