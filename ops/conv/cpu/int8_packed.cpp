// Convolutions of uint8 by int8 without columns: tiles of output pixels by two vectors of filters, whose accumulators
// stay in registers (int8_windows.h).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ops/conv/cpu/int8_windows.h"

#define LENSLET_SIMD_BYTE_PRODUCTS
#include "base/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/int8_packed.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// VNNI multiplies bytes; else pairs of 16-bit integers are multiplied, whose products fit. CPUs without AVX-512 may
// have AVX-VNNI, which is no target of Highway's.
constexpr bool has_vnni = HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL;
constexpr bool may_have_vnni = HWY_ARCH_X86_64 && HWY_TARGET == HWY_AVX2;
// As many accumulators as registers allow beside the operands.
constexpr std::int64_t tile_rows = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3 ? 13 : 6;

using D = hn::ScalableTag<std::int32_t>;
using V = hn::Vec<D>;

std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }
std::int64_t word_k() { return has_vnni || (may_have_vnni && has_avx_vnni()) ? 4 : 2; }

/// Adds the products of words; those of 16 bits leave a share in `rest`.
template <bool bytes>
HWY_INLINE void multiply_add(V x, V w, V& sum, [[maybe_unused]] V& rest) {
  if constexpr (bytes) {
#if HWY_ARCH_X86_64
    // By hand: Highway has it only from 1.1 on.
    if constexpr (has_vnni)
      asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
    else
      asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(x.raw), "x"(w.raw));
#endif
  } else {
#if HWY_TARGET == HWY_SCALAR
    const auto half = [](V v, int i) { return static_cast<std::int16_t>(static_cast<std::uint32_t>(v.raw) >> 16 * i); };
    sum.raw += half(x, 0) * half(w, 0) + half(x, 1) * half(w, 1);
#else
    const hn::Repartition<std::int16_t, D> d16;
    sum = hn::ReorderWidenMulAccumulate(D(), hn::BitCast(d16, x), hn::BitCast(d16, w), sum, rest);
#endif
  }
}

template <bool bytes>
HWY_INLINE V total(V sum, [[maybe_unused]] V rest) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (!bytes) return hn::RearrangeToOddPlusEven(sum, rest);
#endif
  return sum;
}

/// What tiles of a panel share.
struct PanelWords {
  const std::int32_t *start, *words, *ahead;
  std::int64_t ahead_step;  ///< between lines of the next panel that are prefetched into L2, one with each word
};

/// The sums of `rows` windows and a panel of `vectors` vectors: [rows][2 vectors].
template <bool bytes, std::int64_t rows, std::int64_t vectors>
void multiply_tile(const WindowBlock& block, const std::byte* const* windows, const PanelWords& of,
                   std::int32_t* sums) {
  const std::int32_t *panel = of.words, *ahead = of.ahead;
  const D d;
  V sum[rows][vectors], rest[rows][vectors];
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t v = 0; v < vectors; ++v) {
      sum[i][v] = hn::LoadU(d, of.start + v * lanes());
      rest[i][v] = hn::Zero(d);
    }
  for (std::int64_t r = 0; r < block.run_count; ++r) {
    const std::int64_t begin = block.runs[r] + block.group_offset, end = begin + 4 * block.words;
    for (std::int64_t at = begin; at < end; at += 4, panel += vectors * lanes(), ahead += of.ahead_step) {
      __builtin_prefetch(ahead, 0, 2);
      V w[vectors];
      for (std::int64_t v = 0; v < vectors; ++v) w[v] = hn::LoadU(d, panel + v * lanes());
      for (std::int64_t i = 0; i < rows; ++i) {
        std::int32_t word;
        std::memcpy(&word, windows[i] + at, sizeof word);
        const V x = hn::Set(d, word);
        for (std::int64_t v = 0; v < vectors; ++v) multiply_add<bytes>(x, w[v], sum[i][v], rest[i][v]);
      }
    }
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t v = 0; v < vectors; ++v)
      hn::StoreU(total<bytes>(sum[i][v], rest[i][v]), d, sums + (2 * i + v) * lanes());
}

template <bool bytes, std::int64_t most, std::int64_t vectors>
void multiply_up_to(const WindowBlock& block, const std::byte* const* windows, std::int64_t rows,
                    const PanelWords& panel, std::int32_t* sums) {
  if (rows == most) return multiply_tile<bytes, most, vectors>(block, windows, panel, sums);
  if constexpr (most > 1) multiply_up_to<bytes, most - 1, vectors>(block, windows, rows, panel, sums);
}

template <typename T>
void store_slowly(const Int8Panel& panel, const std::int32_t* sums, std::int64_t rows, std::uint8_t* y,
                  std::int64_t y_pixel) {
  const Requantization to{panel.multipliers, panel.codes.zero_point};
  for (std::int64_t i = 0; i < rows; ++i, sums += 2 * lanes(), y += y_pixel)
    for (std::int64_t j = 0; j < panel.columns; ++j) {
      const std::int32_t code = to.stored<T>(sums[j], j);
      y[j] = static_cast<std::uint8_t>(std::clamp(code, panel.codes.least, panel.codes.most));
    }
}

#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3
/// Two rows of two vectors at a time: 8 instructions fewer than by Highway's DemoteTo.
template <bool below_one, bool is_signed>
void store_rows(const Int8Panel& panel, const std::int32_t* sums, std::int64_t rows, std::uint8_t* y,
                std::int64_t y_pixel) {
  const __m512 factor[] = {_mm512_load_ps(panel.multipliers), _mm512_load_ps(panel.multipliers + 16)};
  const __m512i zero = _mm512_set1_epi16(static_cast<std::int16_t>(panel.codes.zero_point));
  const __m512i least = _mm512_set1_epi8(static_cast<char>(panel.codes.least));
  const __m512i most = _mm512_set1_epi8(static_cast<char>(panel.codes.most));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const auto columns = static_cast<std::uint32_t>((std::uint64_t{1} << panel.columns) - 1);
  const auto rounded = [&](std::int64_t i, int v) HWY_ATTR {
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(sums + i * 32 + v * 16)), factor[v]);
    // What is too small becomes the least integer, what is too large would, too.
    if constexpr (!below_one) value = _mm512_min_ps(value, _mm512_set1_ps(1 << 20));
    return _mm512_cvtps_epi32(value);
  };
  const bool whole = panel.columns == 32, shifts = panel.codes.zero_point != 0;
  const bool clamps = panel.codes.least > (is_signed ? -128 : 0) || panel.codes.most < (is_signed ? 127 : 255);
  const auto row = [&](std::int64_t i) HWY_ATTR {
    const __m512i words = _mm512_packs_epi32(rounded(i, 0), rounded(i, 1));
    return shifts ? _mm512_adds_epi16(words, zero) : words;
  };
  for (std::int64_t i = 0; i < rows; i += 2) {
    const bool both = i + 1 < rows;
    const __m512i first = row(i), second = both ? row(i + 1) : first;
    __m512i codes;
    if constexpr (is_signed) {
      codes = _mm512_packs_epi16(first, second);
      if (clamps) codes = _mm512_min_epi8(_mm512_max_epi8(codes, least), most);
    } else {
      codes = _mm512_packus_epi16(first, second);
      if (clamps) codes = _mm512_min_epu8(_mm512_max_epu8(codes, least), most);
    }
    codes = _mm512_permutexvar_epi32(order, codes);
    const __m256i halves[] = {_mm512_castsi512_si256(codes), _mm512_extracti64x4_epi64(codes, 1)};
    for (std::int64_t half = 0; half < (both ? 2 : 1); ++half, y += y_pixel) {
      if (whole)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), halves[half]);
      else
        _mm256_mask_storeu_epi8(y, columns, halves[half]);
    }
  }
}

template <bool is_signed>
void store_typed(const Int8Panel& panel, const std::int32_t* sums, std::int64_t rows, std::uint8_t* y,
                 std::int64_t y_pixel) {
  if (panel.below_one)
    store_rows<true, is_signed>(panel, sums, rows, y, y_pixel);
  else
    store_rows<false, is_signed>(panel, sums, rows, y, y_pixel);
}
#else
template <bool is_signed>
void store_typed(const Int8Panel& panel, const std::int32_t* sums, std::int64_t rows, std::uint8_t* y,
                 std::int64_t y_pixel) {
  using T = std::conditional_t<is_signed, std::int8_t, std::uint8_t>;
  const D d;
  const hn::RebindToFloat<D> df;
  const hn::Rebind<T, D> d8;
  // Bounds are whole, so that they may come before the rounding, for which the sum's last bit is worth one.
  const auto least = hn::Set(df, static_cast<float>(panel.codes.least - panel.codes.zero_point));
  const auto most = hn::Set(df, static_cast<float>(panel.codes.most - panel.codes.zero_point));
  const auto magic = hn::Set(df, 0x1.8p23F);
  const V shift = hn::Sub(hn::BitCast(d, magic), hn::Set(d, panel.codes.zero_point));
  T codes[2 * hn::MaxLanes(D())];
  const bool whole = panel.columns == 2 * lanes();
  for (std::int64_t i = 0; i < rows; ++i, sums += 2 * lanes(), y += y_pixel) {
    T* const to = whole ? reinterpret_cast<T*>(y) : codes;
    for (std::int64_t j = 0; j < panel.columns; j += lanes()) {
      const auto value = hn::Mul(hn::ConvertTo(df, hn::LoadU(d, sums + j)), hn::LoadU(df, panel.multipliers + j));
      const V rounded = hn::BitCast(d, hn::Add(hn::Min(hn::Max(value, least), most), magic));
      hn::StoreU(hn::DemoteTo(d8, hn::Sub(rounded, shift)), d8, to + j);
    }
    if (!whole) std::memcpy(y, codes, static_cast<std::size_t>(panel.columns));
  }
}
#endif

void store(const Int8Panel& panel, const std::int32_t* sums, std::int64_t rows, std::uint8_t* y, std::int64_t y_pixel) {
  if (!panel.finite && panel.codes.is_signed) return store_slowly<std::int8_t>(panel, sums, rows, y, y_pixel);
  if (!panel.finite) return store_slowly<std::uint8_t>(panel, sums, rows, y, y_pixel);
  if (panel.codes.is_signed) return store_typed<true>(panel, sums, rows, y, y_pixel);
  store_typed<false>(panel, sums, rows, y, y_pixel);
}

template <bool bytes>
void multiply_panels(const WindowBlock& block) {
  HWY_ALIGN std::int32_t sums[tile_rows * Int8Panel::most_columns];
  constexpr std::int64_t line = 16;
  const std::int64_t columns = 2 * lanes(), depth = block.run_count * block.words;
  // Tiles of similar height: a low one would wait for its own accumulators.
  const std::int64_t tiles = (block.m + tile_rows - 1) / tile_rows;
  for (std::int64_t k = 0; k < block.k; k += columns) {
    const Int8Panel panel(block, k, columns);
    const std::int32_t* const filters = block.filters + k * depth;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t m = block.m * tile / tiles, rows = block.m * (tile + 1) / tiles - m;
      // In a network filters come from L3 or memory: the first tiles of a panel fetch the next one.
      const std::int32_t* const ahead = filters + columns * depth + tile * line * depth;
      const PanelWords of{panel.start, filters, ahead, tile * line < columns ? line : 0};
      if (panel.columns > lanes())
        multiply_up_to<bytes, tile_rows, 2>(block, block.windows + m, rows, of, sums);
      else
        multiply_up_to<bytes, tile_rows, 1>(block, block.windows + m, rows, of, sums);
      store(panel, sums, rows, reinterpret_cast<std::uint8_t*>(block.y + k + m * block.y_pixel), block.y_pixel);
    }
  }
}

void multiply(const WindowBlock& block) {
  if constexpr (may_have_vnni)
    if (has_avx_vnni()) return multiply_panels<true>(block);
  multiply_panels<has_vnni>(block);
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
namespace {

HWY_EXPORT(lanes);
HWY_EXPORT(word_k);
HWY_EXPORT(multiply);
HWY_EXPORT(store);

class Int8Packed final : public Int8Conv {
 public:
  std::string_view name() const override { return "int8_packed"; }

 private:
  WindowKernel kernel() const override { return int8_vector_kernel(); }
};

}  // namespace

WindowKernel int8_vector_kernel() {
  WindowKernel kernel;
  kernel.lanes = HWY_DYNAMIC_DISPATCH(lanes)();
  kernel.word_k = HWY_DYNAMIC_DISPATCH(word_k)();
  kernel.speed = 0.95 * static_cast<double>(kernel.word_k);
  kernel.vector_us = 1e-3;
  kernel.multiply = [](const WindowBlock& block) { HWY_DYNAMIC_DISPATCH(multiply)(block); };
  return kernel;
}

void store_int8_rows(const Int8Panel& panel, const std::int32_t* sums, std::int64_t rows, std::uint8_t* y,
                     std::int64_t y_pixel) {
  HWY_DYNAMIC_DISPATCH(store)(panel, sums, rows, y, y_pixel);
}

const Kernel& conv_int8_packed() {
  static const Int8Packed algorithm;
  return algorithm;
}

}  // namespace lenslet
#endif
