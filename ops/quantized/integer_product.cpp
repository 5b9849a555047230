// The inner loops of integer products, compiled once per instruction set.
#include "ops/quantized/integer_product.h"

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

constexpr std::int64_t tile_vectors = 2, tile_rows = 6;

std::int64_t panel_columns() {
  return tile_vectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<std::int32_t>()));
}

#if HWY_TARGET == HWY_SCALAR
template <std::int64_t rows>
void multiply_tile(const std::int16_t* a, std::int64_t k, const std::int16_t* panel, std::int32_t* sums) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < tile_vectors; ++j) {
      std::uint32_t sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += static_cast<std::uint32_t>(a[i * k + l] * panel[(l / 2 * tile_vectors + j) * 2 + l % 2]);
      sums[i * tile_vectors + j] = static_cast<std::int32_t>(sum);
    }
}
#else
template <std::int64_t rows>
void multiply_tile(const std::int16_t* a, std::int64_t k, const std::int16_t* panel, std::int32_t* sums) {
  const hn::ScalableTag<std::int32_t> d;
  const hn::Repartition<std::int16_t, decltype(d)> d16;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Pairs are added up by one instruction on x86; elsewhere the second sum takes its share.
  V sum[rows][tile_vectors], rest[rows][tile_vectors];
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t v = 0; v < tile_vectors; ++v) sum[i][v] = rest[i][v] = hn::Zero(d);
  for (std::int64_t l = 0; l < k; l += 2, panel += 2 * tile_vectors * lanes) {
    const auto b0 = hn::LoadU(d16, panel), b1 = hn::LoadU(d16, panel + 2 * lanes);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::int32_t pair;
      __builtin_memcpy(&pair, a + i * k + l, sizeof(pair));
      const auto both = hn::BitCast(d16, hn::Set(d, pair));
      sum[i][0] = hn::ReorderWidenMulAccumulate(d, both, b0, sum[i][0], rest[i][0]);
      sum[i][1] = hn::ReorderWidenMulAccumulate(d, both, b1, sum[i][1], rest[i][1]);
    }
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t v = 0; v < tile_vectors; ++v)
      hn::StoreU(hn::RearrangeToOddPlusEven(sum[i][v], rest[i][v]), d, sums + (i * tile_vectors + v) * lanes);
}
#endif

void multiply_panel(const std::int16_t* a, std::int64_t rows, std::int64_t k, const std::int16_t* panel,
                    std::int32_t* sums) {
  const std::int64_t columns = panel_columns();
  for (; rows >= tile_rows; rows -= tile_rows, a += tile_rows * k, sums += tile_rows * columns)
    multiply_tile<tile_rows>(a, k, panel, sums);
  switch (rows) {
    case 5:
      return multiply_tile<5>(a, k, panel, sums);
    case 4:
      return multiply_tile<4>(a, k, panel, sums);
    case 3:
      return multiply_tile<3>(a, k, panel, sums);
    case 2:
      return multiply_tile<2>(a, k, panel, sums);
    case 1:
      return multiply_tile<1>(a, k, panel, sums);
  }
}

void interleave(const std::uint8_t* first, const std::uint8_t* second, const IntegerOperand& of, int zero,
                std::int64_t count, std::int16_t* pairs) {
  const int flip = of.is_signed ? 0x80 : 0, less = flip + zero;
  if (second == nullptr)
    for (std::int64_t j = 0; j < count; ++j) {
      pairs[2 * j] = static_cast<std::int16_t>((first[j] ^ flip) - less);
      pairs[2 * j + 1] = 0;
    }
  else
    for (std::int64_t j = 0; j < count; ++j) {
      pairs[2 * j] = static_cast<std::int16_t>((first[j] ^ flip) - less);
      pairs[2 * j + 1] = static_cast<std::int16_t>((second[j] ^ flip) - less);
    }
}

/// As requantized(), with one multiplier for all.
void requantize(const std::int32_t* sums, std::int64_t count, std::int32_t bias, float multiplier, int zero,
                bool is_signed, std::uint8_t* y) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<std::int32_t> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const int low = (is_signed ? -128 : 0) - zero;
  const auto factor = hn::Set(d, multiplier), least = hn::Set(d, static_cast<float>(low)),
             most = hn::Set(d, static_cast<float>(low + 255));
  HWY_ALIGN std::int32_t rounded[hn::MaxLanes(hn::ScalableTag<std::int32_t>())];
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    const auto sum = hn::Add(hn::LoadU(di, sums + j), hn::Set(di, bias));
    const auto value = hn::Mul(hn::ConvertTo(d, sum), factor);
    hn::Store(hn::NearestInt(hn::Min(hn::Max(value, least), most)), di, rounded);
    for (std::int64_t v = 0; v < lanes; ++v) y[j + v] = static_cast<std::uint8_t>(rounded[v] + zero);
  }
  for (; j < count; ++j) {
    const auto sum = static_cast<std::uint32_t>(sums[j]) + static_cast<std::uint32_t>(bias);
    y[j] = requantized(static_cast<std::int32_t>(sum), multiplier, zero, is_signed);
  }
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
HWY_EXPORT(panel_columns);
HWY_EXPORT(multiply_panel);
HWY_EXPORT(interleave);
HWY_EXPORT(requantize);

std::int64_t integer_panel_columns() { return HWY_DYNAMIC_DISPATCH(panel_columns)(); }

void multiply_integer_panel(const std::int16_t* a, std::int64_t rows, std::int64_t k, const std::int16_t* panel,
                            std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(multiply_panel)(a, rows, k, panel, sums);
}

void interleave_integers(const std::uint8_t* first, const std::uint8_t* second, const IntegerOperand& of, int zero,
                         std::int64_t count, std::int16_t* pairs) {
  HWY_DYNAMIC_DISPATCH(interleave)(first, second, of, zero, count, pairs);
}

void store_integer_row(const IntegerResult& result, const std::int32_t* sums, const IntegerPlace& at,
                       std::int64_t count, std::int64_t y_at) {
  IntegerPlace place = at;
  if (!result.is_quantized()) {
    auto* const y = static_cast<std::int32_t*>(result.y) + y_at;
    for (std::int64_t v = 0; v < count; ++v) y[v] = result.whole(sums[v], at);
    return;
  }
  auto* const y = static_cast<std::uint8_t*>(result.y) + y_at;
  const int zero = result.y_zero.zero_point(0, 0);
  const float first = result.multiplier(at);
  if (result.column_scale.lines.step == 0 && std::isfinite(first))
    return HWY_DYNAMIC_DISPATCH(requantize)(sums, count, result.whole(0, at), first, zero, result.y_zero.is_signed, y);
  for (std::int64_t v = 0; v < count; ++v, ++place.j)
    y[v] = requantized(result.whole(sums[v], at), result.multiplier(place), zero, result.y_zero.is_signed);
}

}  // namespace lenslet
#endif
