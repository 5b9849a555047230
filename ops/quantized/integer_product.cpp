// The inner loops of integer products, compiled per instruction set.
#include "ops/quantized/integer_product.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#define LENSLET_SIMD_BYTE_PRODUCTS
#include "base/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantized/integer_product.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// VNNI multiplies bytes; other targets multiply pairs of 16-bit integers, whose products fit.
constexpr bool of_bytes = HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL;
constexpr std::int64_t word_k_here = of_bytes ? 4 : 2;
// As many accumulators as registers allow beside the operands.
constexpr std::int64_t tile_vectors = 2, tile_rows = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3 ? 12 : 6;
constexpr std::int64_t most_columns = 64;

std::int64_t panel_columns() {
  return tile_vectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<std::int32_t>()));
}
std::int64_t word_k() { return word_k_here; }

/// The xor mask that makes a byte's sign the required one.
[[maybe_unused]] constexpr std::uint8_t flip(const IntegerOperand& of, bool to_signed) {
  return of.is_signed == to_signed ? std::uint8_t{0} : std::uint8_t{0x80};
}
/// The zero point of such bytes.
[[maybe_unused]] constexpr int flipped_zero(const IntegerOperand& of, bool to_signed, int zero) {
  return zero + (of.is_signed == to_signed ? 0 : to_signed ? -128 : 128);
}

void pack_row(const IntegerOperand& of, int zero, const std::uint8_t* from, std::int64_t taps, std::int64_t terms,
              std::int32_t* line) {
  const std::int64_t words = (terms + word_k_here - 1) / word_k_here;
  if constexpr (of_bytes) {
    const std::uint8_t other = flip(of, true);
    std::int32_t sum = 0;
    for (std::int64_t t = 0; t < taps; ++t) {
      auto* const to = reinterpret_cast<std::int8_t*>(line + t * words);
      for (std::int64_t i = 0; i < terms; ++i) to[i] = static_cast<std::int8_t>(from[i * taps + t] ^ other);
      std::fill(to + terms, to + 4 * words, std::int8_t{0});
      for (std::int64_t i = 0; i < terms; ++i) sum += to[i];
    }
    const auto own = static_cast<std::uint32_t>(flipped_zero(of, true, zero));
    const auto all = static_cast<std::uint32_t>(sum) - static_cast<std::uint32_t>(taps * terms) * own;
    line[taps * words] = static_cast<std::int32_t>(all);
    line[taps * words + 1] = static_cast<std::int32_t>(own);
  } else {
    for (std::int64_t t = 0; t < taps; ++t) {
      auto* const to = reinterpret_cast<std::int16_t*>(line + t * words);
      for (std::int64_t i = 0; i < terms; ++i) to[i] = static_cast<std::int16_t>(of.widened(from[i * taps + t]) - zero);
      if (terms % 2 != 0) to[terms] = 0;
    }
    line[taps * words] = line[taps * words + 1] = 0;
  }
}

void pack_panel(const IntegerOperand& of, const PanelColumns& panel, const std::uint8_t* from, std::int64_t step,
                std::int64_t terms, std::int32_t* to) {
  const std::int64_t columns = panel_columns();
#if HWY_TARGET != HWY_SCALAR
  if constexpr (of_bytes) {
    const hn::CappedTag<std::uint8_t, 32> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::uint8_t other = flip(of, false);
    const auto flips = hn::Set(d, other);
    std::uint8_t spare[4][most_columns];
    const std::uint8_t* rows[4];
    for (std::int64_t l = 0; l < terms; l += 4, to += columns) {
      for (std::int64_t i = 0; i < 4; ++i) {
        rows[i] = from + (l + i) * step;
        if (l + i < terms && panel.count == columns) continue;
        // Missing rows are zero and not read.
        std::fill(spare[i], spare[i] + columns, other);
        if (l + i < terms) std::copy(rows[i], rows[i] + panel.count, spare[i]);
        rows[i] = spare[i];
      }
      for (std::int64_t j = 0; j < columns; j += lanes) {
        const auto row = [&](int i) HWY_ATTR { return hn::Xor(hn::LoadU(d, rows[i] + j), flips); };
        hn::StoreInterleaved4(row(0), row(1), row(2), row(3), d, reinterpret_cast<std::uint8_t*>(to + j));
      }
    }
    return;
  }
#endif
  const bool one_zero = of.zeros.step == 0;
  const int sign = of.is_signed ? 0x80 : 0, less = sign + (one_zero ? of.zero_point(0, 0) : 0);
  for (std::int64_t l = 0; l < terms; l += 2, to += columns) {
    const std::uint8_t *const first = from + l * step, *const second = first + step;
    auto* const pairs = reinterpret_cast<std::int16_t*>(to);
    const bool both = l + 1 < terms;
    if (both)
      for (std::int64_t j = 0; j < panel.count; ++j) {
        pairs[2 * j] = static_cast<std::int16_t>((first[j] ^ sign) - less);
        pairs[2 * j + 1] = static_cast<std::int16_t>((second[j] ^ sign) - less);
      }
    else
      for (std::int64_t j = 0; j < panel.count; ++j) {
        pairs[2 * j] = static_cast<std::int16_t>((first[j] ^ sign) - less);
        pairs[2 * j + 1] = 0;
      }
    std::fill(pairs + 2 * panel.count, pairs + 2 * columns, std::int16_t{0});
    if (one_zero) continue;
    for (std::int64_t j = 0; j < panel.count; ++j) {
      const int zero = of.zero_point(panel.matrix, panel.first + j);
      pairs[2 * j] = static_cast<std::int16_t>(pairs[2 * j] - zero);
      if (both) pairs[2 * j + 1] = static_cast<std::int16_t>(pairs[2 * j + 1] - zero);
    }
  }
}

void copy_words(const std::int32_t* from, std::int64_t step, std::int64_t words, std::int64_t count, std::int32_t* to) {
  const hn::ScalableTag<std::int32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t l = 0; l < words; ++l, from += step, to += tile_vectors * lanes) {
    if (count == tile_vectors * lanes) {
      const auto first = hn::LoadU(d, from), second = hn::LoadU(d, from + lanes);
      hn::StoreU(first, d, to);
      hn::StoreU(second, d, to + lanes);
    } else {
      std::copy(from, from + count, to);
      std::fill(to + count, to + tile_vectors * lanes, 0);
    }
  }
}

#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
/// sum + u0 * s0 + u1 * s1 + u2 * s2 + u3 * s3 of each lane's bytes. By hand: Highway has it only from 1.1 on.
template <class V>
HWY_INLINE V multiply_bytes(V u, V s, V sum) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(u.raw), "v"(s.raw));
  return sum;
}
#endif

void close_panel([[maybe_unused]] const IntegerOperand& of, [[maybe_unused]] const PanelColumns& panel,
                 std::int64_t words, std::int32_t* to) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
  const hn::ScalableTag<std::int32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d)), columns = tile_vectors * lanes;
  std::int32_t* const zeros = to + words * columns;
  for (std::int64_t j = 0; j < columns; ++j)
    zeros[j] = j < panel.count ? flipped_zero(of, false, of.zero_point(panel.matrix, panel.first + j)) : 0;
  const auto ones = hn::Set(d, 0x01010101);
  for (std::int64_t j = 0; j < columns; j += lanes) {
    auto even = hn::Zero(d), odd = hn::Zero(d);
    std::int64_t l = 0;
    for (; l + 2 <= words; l += 2) {
      even = multiply_bytes(hn::LoadU(d, to + l * columns + j), ones, even);
      odd = multiply_bytes(hn::LoadU(d, to + (l + 1) * columns + j), ones, odd);
    }
    if (l < words) even = multiply_bytes(hn::LoadU(d, to + l * columns + j), ones, even);
    hn::StoreU(hn::Add(even, odd), d, zeros + columns + j);
  }
#else
  std::fill(to + words * panel_columns(), to + integer_line(words) * panel_columns(), 0);
#endif
}

#if HWY_TARGET == HWY_SCALAR
template <std::int64_t rows>
void multiply_tile(const std::int32_t* a, std::int64_t words, const std::int32_t* panel, std::int32_t* sums) {
  const auto* const right = reinterpret_cast<const std::int16_t*>(panel);
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto* const left = reinterpret_cast<const std::int16_t*>(a + i * integer_line(words));
    for (std::int64_t j = 0; j < tile_vectors; ++j) {
      std::uint32_t sum = 0;
      for (std::int64_t l = 0; l < 2 * words; ++l)
        sum += static_cast<std::uint32_t>(left[l] * right[(l / 2 * tile_vectors + j) * 2 + l % 2]);
      sums[i * tile_vectors + j] = static_cast<std::int32_t>(sum);
    }
  }
}
#elif HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
template <std::int64_t rows>
void multiply_tile(const std::int32_t* a, std::int64_t words, const std::int32_t* panel, std::int32_t* sums) {
  const hn::ScalableTag<std::int32_t> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t line = integer_line(words);
  V sum[rows][tile_vectors];
  for (std::int64_t i = 0; i < rows; ++i) sum[i][0] = sum[i][1] = hn::Zero(d);
  for (std::int64_t l = 0; l < words; ++l, panel += tile_vectors * lanes) {
    const V b0 = hn::LoadU(d, panel), b1 = hn::LoadU(d, panel + lanes);
    for (std::int64_t i = 0; i < rows; ++i) {
      const V left = hn::Set(d, a[i * line + l]);
      sum[i][0] = multiply_bytes(b0, left, sum[i][0]);
      sum[i][1] = multiply_bytes(b1, left, sum[i][1]);
    }
  }
  // With zero points z: sum (a - z_a) (b - z_b) = sum a b - (sum a - k z_a) z_b - z_a sum b.
  const V zeros[] = {hn::LoadU(d, panel), hn::LoadU(d, panel + lanes)};
  const V totals[] = {hn::LoadU(d, panel + 2 * lanes), hn::LoadU(d, panel + 3 * lanes)};
  const auto finish = [&](std::int64_t i, std::int64_t v) HWY_ATTR {
    const V less = hn::Add(hn::Mul(hn::Set(d, a[i * line + words]), zeros[v]),
                           hn::Mul(hn::Set(d, a[i * line + words + 1]), totals[v]));
    hn::StoreU(hn::Sub(sum[i][v], less), d, sums + (i * tile_vectors + v) * lanes);
  };
  // Not a loop, for which the compiler would keep the accumulators in memory.
  [&]<std::int64_t... i>(std::integer_sequence<std::int64_t, i...>) HWY_ATTR { ((finish(i, 0), finish(i, 1)), ...); }
  (std::make_integer_sequence<std::int64_t, rows>());
}
#else
template <std::int64_t rows>
void multiply_tile(const std::int32_t* a, std::int64_t words, const std::int32_t* panel, std::int32_t* sums) {
  const hn::ScalableTag<std::int32_t> d;
  const hn::Repartition<std::int16_t, decltype(d)> d16;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // On x86 one instruction adds up pairs; elsewhere the second accumulator takes a share.
  V sum[rows][tile_vectors], rest[rows][tile_vectors];
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t v = 0; v < tile_vectors; ++v) sum[i][v] = rest[i][v] = hn::Zero(d);
  for (std::int64_t l = 0; l < words; ++l, panel += tile_vectors * lanes) {
    const auto b0 = hn::BitCast(d16, hn::LoadU(d, panel)), b1 = hn::BitCast(d16, hn::LoadU(d, panel + lanes));
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto both = hn::BitCast(d16, hn::Set(d, a[i * integer_line(words) + l]));
      sum[i][0] = hn::ReorderWidenMulAccumulate(d, both, b0, sum[i][0], rest[i][0]);
      sum[i][1] = hn::ReorderWidenMulAccumulate(d, both, b1, sum[i][1], rest[i][1]);
    }
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t v = 0; v < tile_vectors; ++v)
      hn::StoreU(hn::RearrangeToOddPlusEven(sum[i][v], rest[i][v]), d, sums + (i * tile_vectors + v) * lanes);
}
#endif

/// A tile of `rows` rows, at most `most`.
template <std::int64_t most>
void multiply_up_to(const std::int32_t* a, std::int64_t rows, std::int64_t words, const std::int32_t* panel,
                    std::int32_t* sums) {
  if (rows == most) return multiply_tile<most>(a, words, panel, sums);
  if constexpr (most > 1) multiply_up_to<most - 1>(a, rows, words, panel, sums);
}

void multiply_panel(const std::int32_t* a, std::int64_t rows, std::int64_t words, const std::int32_t* panel,
                    std::int32_t* sums) {
  // Tiles of similar height: a low one would wait for its own accumulators.
  for (std::int64_t tiles = (rows + tile_rows - 1) / tile_rows; tiles > 0; --tiles) {
    const std::int64_t height = (rows + tiles - 1) / tiles;
    multiply_up_to<tile_rows>(a, height, words, panel, sums);
    a += height * integer_line(words);
    sums += height * panel_columns();
    rows -= height;
  }
}

/// requantized() with one multiplier for a whole row.
template <class D8>
HWY_INLINE void requantize(D8 d8, const std::int32_t* sums, std::int64_t count, std::int32_t bias, float multiplier,
                           int zero, std::uint8_t* y) {
  constexpr bool is_signed = std::is_same_v<hn::TFromD<D8>, std::int8_t>;
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<std::int32_t> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const int low = (is_signed ? -128 : 0) - zero;
  const auto factor = hn::Set(d, multiplier), least = hn::Set(d, static_cast<float>(low)),
             most = hn::Set(d, static_cast<float>(low + 255));
  const auto more = hn::Set(di, bias), offset = hn::Set(di, zero);
  const auto one = [&](std::int64_t at) HWY_ATTR {
    const auto value = hn::Mul(hn::ConvertTo(d, hn::Add(hn::LoadU(di, sums + at), more)), factor);
    const auto rounded = hn::Add(hn::NearestInt(hn::Min(hn::Max(value, least), most)), offset);
    hn::StoreU(hn::DemoteTo(d8, rounded), d8, reinterpret_cast<hn::TFromD<D8>*>(y + at));
  };
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes) one(j);
  if (j == count) return;
  // The last vector overlaps the previous one.
  if (j > 0) return one(count - lanes);
  for (; j < count; ++j) {
    const auto sum = static_cast<std::uint32_t>(sums[j]) + static_cast<std::uint32_t>(bias);
    y[j] = requantized(static_cast<std::int32_t>(sum), multiplier, zero, is_signed);
  }
}

void store_rows(const IntegerResult& result, const std::int32_t* sums, std::int64_t rows, const IntegerPlace& at,
                std::int64_t count, std::int64_t y_at, std::int64_t y_step) {
  const hn::ScalableTag<std::int32_t> di;
  const int zero = result.is_quantized() ? result.y_zero.zero_point(0, 0) : 0;
  IntegerPlace place = at;
  for (std::int64_t i = 0; i < rows; ++i, ++place.i, y_at += y_step, sums += panel_columns()) {
    const std::int32_t bias = result.whole(0, place);
    if (!result.is_quantized()) {
      auto* const y = static_cast<std::int32_t*>(result.y) + y_at;
      for (std::int64_t j = 0; j < count; ++j)
        y[j] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[j]) + static_cast<std::uint32_t>(bias));
      continue;
    }
    auto* const y = static_cast<std::uint8_t*>(result.y) + y_at;
    const float multiplier = result.multiplier(place);
    if (result.column_scale.lines.step == 0 && std::isfinite(multiplier)) {
      if (result.y_zero.is_signed)
        requantize(hn::Rebind<std::int8_t, decltype(di)>(), sums, count, bias, multiplier, zero, y);
      else
        requantize(hn::Rebind<std::uint8_t, decltype(di)>(), sums, count, bias, multiplier, zero, y);
      continue;
    }
    IntegerPlace column = place;
    for (std::int64_t j = 0; j < count; ++j, ++column.j)
      y[j] = requantized(result.whole(sums[j], column), result.multiplier(column), zero, result.y_zero.is_signed);
  }
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
HWY_EXPORT(panel_columns);
HWY_EXPORT(word_k);
HWY_EXPORT(pack_row);
HWY_EXPORT(pack_panel);
HWY_EXPORT(copy_words);
HWY_EXPORT(close_panel);
HWY_EXPORT(multiply_panel);
HWY_EXPORT(store_rows);

std::int64_t integer_panel_columns() { return HWY_DYNAMIC_DISPATCH(panel_columns)(); }
std::int64_t integer_word_k() { return HWY_DYNAMIC_DISPATCH(word_k)(); }

void pack_integer_row(const IntegerOperand& of, int zero, const std::uint8_t* from, std::int64_t taps,
                      std::int64_t terms, std::int32_t* line) {
  HWY_DYNAMIC_DISPATCH(pack_row)(of, zero, from, taps, terms, line);
}

void pack_integer_panel(const IntegerOperand& of, const PanelColumns& columns, const std::uint8_t* from,
                        std::int64_t step, std::int64_t terms, std::int32_t* panel) {
  HWY_DYNAMIC_DISPATCH(pack_panel)(of, columns, from, step, terms, panel);
}

void copy_integer_words(const std::int32_t* from, std::int64_t step, std::int64_t words, std::int64_t count,
                        std::int32_t* panel) {
  HWY_DYNAMIC_DISPATCH(copy_words)(from, step, words, count, panel);
}

void close_integer_panel(const IntegerOperand& of, const PanelColumns& columns, std::int64_t words,
                         std::int32_t* panel) {
  HWY_DYNAMIC_DISPATCH(close_panel)(of, columns, words, panel);
}

void multiply_integer_panel(const std::int32_t* a, std::int64_t rows, std::int64_t words, const std::int32_t* panel,
                            std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(multiply_panel)(a, rows, words, panel, sums);
}

void store_integer_rows(const IntegerResult& result, const std::int32_t* sums, std::int64_t rows,
                        const IntegerPlace& at, std::int64_t count, std::int64_t y_at, std::int64_t y_step) {
  HWY_DYNAMIC_DISPATCH(store_rows)(result, sums, rows, at, count, y_at, y_step);
}

}  // namespace lenslet
#endif
