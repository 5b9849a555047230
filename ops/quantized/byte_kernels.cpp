#include "ops/quantized/byte_kernels.h"

#include <algorithm>
#include <cmath>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantized/byte_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/core/simd/divide-inl.h"
#include "ops/core/simd/first_lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void binary_rows_plain(const BinaryCodes& of, const ByteOperand& a, const ByteOperand& b, std::uint8_t* y,
                       std::int64_t y_row, std::int64_t rows, std::int64_t n) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < n; ++i)
      y[row * y_row + i] = binary_code(of, a, a.at[row * a.row + i * a.stride], b, b.at[row * b.row + i * b.stride]);
}

#if HWY_TARGET != HWY_SCALAR

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using Words = hn::RebindToUnsigned<D>;
using Bytes = hn::Repartition<std::uint8_t, D>;

/// Four vectors: the first has elements 0, 4, 8 ..., the second 1, 5, 9 ...
struct Four {
  V v[4];
};

/// An operand's numbers. A byte in the mantissa of 2^23, whose unit is 1, needs no conversion; in the mantissa's second
/// byte it counts 256 times, which the scale takes back. All is exact but the product with the scale.
class NumbersOf {
 public:
  explicit NumbersOf(const ByteOperand& operand) : operand_(operand) {}

  /// Scales for which the 256th part is a normal number, and no number overflows.
  static bool serves(const ByteOperand& operand) { return operand.scale >= 0x1p-60F && operand.scale <= 0x1p60F; }

  HWY_INLINE Four operator()(hn::Vec<Bytes> codes) const {
    const D d;
    const Words words;
    const auto low = hn::BitCast(words, hn::Xor(codes, hn::Set(Bytes(), operand_.flip)));
    const auto high = hn::ShiftRight<16>(low);
    const auto exponent = hn::Set(words, 0x4B000000U), first = hn::Set(words, 0xFFU), second = hn::Set(words, 0xFF00U);
    const auto zero = static_cast<float>(operand_.zero_point);
    const V ones = hn::Set(d, 0x1p23F + zero), scale = hn::Set(d, operand_.scale);
    const V other = hn::Set(d, 0x1p23F + 256 * zero), part = hn::Set(d, operand_.scale / 256);
    const auto number = [&](auto from, auto byte, V offset, V factor) HWY_ATTR {
      return hn::Mul(hn::Sub(hn::BitCast(d, hn::OrAnd(exponent, from, byte)), offset), factor);
    };
    return {{number(low, first, ones, scale), number(low, second, other, part), number(high, first, ones, scale),
             number(high, second, other, part)}};
  }

 private:
  const ByteOperand operand_;
};

/// From numbers to codes of y.
template <bool multiplies, class Divide>
class CodesOf {
 public:
  explicit CodesOf(const BinaryCodes& of) : of_(of), divide_{of.y_scale} {}

  HWY_INLINE hn::Vec<Bytes> operator()(const Four& a, const Four& b) const {
    const Words words;
    hn::Vec<Words> bits[4];
    for (int i = 0; i < 4; ++i) bits[i] = rounded(multiplies ? hn::Mul(a.v[i], b.v[i]) : hn::Add(a.v[i], b.v[i]));
    const auto byte = hn::Set(words, 0xFFU), half = hn::Set(words, 0xFFFFU);
    const auto low = hn::OrAnd(hn::ShiftLeft<8>(bits[1]), bits[0], byte);
    const auto high = hn::OrAnd(hn::ShiftLeft<8>(bits[3]), bits[2], byte);
    const auto all = hn::BitCast(Bytes(), hn::OrAnd(hn::ShiftLeft<16>(high), low, half));
    return hn::Add(all, hn::Set(Bytes(), static_cast<std::uint8_t>(of_.y_zero_point)));
  }

 private:
  /// The quotient by y's scale as an integer, in the low bits.
  HWY_INLINE hn::Vec<Words> rounded(V x) const {
    const D d;
    // The quotients of these bounds, and all beyond, round to the ends of y's codes.
    const V low = hn::Set(d, of_.y_scale * static_cast<float>(of_.least - of_.y_zero_point));
    const V high = hn::Set(d, of_.y_scale * static_cast<float>(of_.most - of_.y_zero_point));
    // A float between 2^23 and 2^24 has units of one: the addition rounds to an integer, ties to even.
    return hn::BitCast(Words(), hn::Add(divide_(hn::Min(hn::Max(x, low), high)), hn::Set(d, 0x1.8p23F)));
  }

  const BinaryCodes of_;
  const Divide divide_;
};

/// As in-lane packing has it: the codes of a, b and so on are the first, second ... of each block of 16 bytes.
#undef LENSLET_X86_PACKS
#define LENSLET_X86_PACKS (HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128)
#if LENSLET_X86_PACKS
[[maybe_unused]] HWY_INLINE __m128i pack_bytes(__m128i low, __m128i high) { return _mm_packus_epi16(low, high); }
#if HWY_TARGET <= HWY_AVX2
[[maybe_unused]] HWY_INLINE __m256i pack_bytes(__m256i low, __m256i high) { return _mm256_packus_epi16(low, high); }
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE __m512i pack_bytes(__m512i low, __m512i high) { return _mm512_packus_epi16(low, high); }
#endif
#endif

/// Sums in fixed point.
class FixedSum {
 public:
  FixedSum(const BinaryCodes& of, const ByteOperand& a, const ByteOperand& b)
      : of_(of), flip_a_(a.flip), flip_b_(b.flip) {}

  HWY_INLINE hn::Vec<Bytes> operator()(hn::Vec<Bytes> a, hn::Vec<Bytes> b) const {
    const Bytes d;
    const Shorts shorts;
    a = hn::Xor(a, hn::Set(d, flip_a_));
    b = hn::Xor(b, hn::Set(d, flip_b_));
    const auto low = hn::InterleaveLower(d, a, b), high = hn::InterleaveUpper(d, a, b), zero = hn::Zero(d);
    const auto first =
        hn::ReorderDemote2To(shorts, sum(hn::InterleaveLower(d, low, zero)), sum(hn::InterleaveUpper(d, low, zero)));
    const auto second =
        hn::ReorderDemote2To(shorts, sum(hn::InterleaveLower(d, high, zero)), sum(hn::InterleaveUpper(d, high, zero)));
#if LENSLET_X86_PACKS
    const hn::Vec<Bytes> codes{pack_bytes(first.raw, second.raw)};
#else
    const hn::Half<Bytes> half;
    const auto codes = hn::Combine(d, hn::DemoteTo(half, second), hn::DemoteTo(half, first));
#endif
    const auto at_least = hn::Max(codes, hn::Set(d, static_cast<std::uint8_t>(of_.least + of_.y_flip)));
    const auto clamped = hn::Min(at_least, hn::Set(d, static_cast<std::uint8_t>(of_.most + of_.y_flip)));
    return hn::Xor(clamped, hn::Set(d, of_.y_flip));
  }

 private:
  using Sums = hn::RebindToSigned<D>;
  using Shorts = hn::Repartition<std::int16_t, D>;

  HWY_INLINE hn::Vec<Sums> sum(hn::Vec<Bytes> pairs) const {
    const Sums sums;
    const Shorts shorts;
    const auto factors =
        hn::BitCast(shorts, hn::Set(sums, static_cast<std::int32_t>(static_cast<std::uint16_t>(of_.factor[0]) |
                                                                    static_cast<std::uint32_t>(of_.factor[1]) << 16)));
    // On x86 one instruction adds up pairs; elsewhere the second accumulator takes a share.
    auto rest = hn::Zero(sums);
    const auto part = hn::ReorderWidenMulAccumulate(sums, hn::BitCast(shorts, pairs), factors, hn::Zero(sums), rest);
    const auto total = hn::Add(hn::RearrangeToOddPlusEven(part, rest), hn::Set(sums, of_.offset));
    return hn::ShiftRightSame(total, of_.shift);
  }

  const BinaryCodes of_;
  const std::uint8_t flip_a_, flip_b_;
};

/// A row of an operand: `count` codes from `i` on, at most a vector; or the same everywhere. What its codes become.
template <class Read>
struct RowOf {
  const Read& read;
  const std::uint8_t* from;
  HWY_INLINE auto operator()(std::int64_t i) const { return read(hn::LoadU(Bytes(), from + i)); }
  HWY_INLINE auto first(std::int64_t i, std::size_t count) const { return read(load_first(Bytes(), from + i, count)); }
};
template <class Read>
struct SameOf {
  using Same = decltype(std::declval<const Read&>()(hn::Zero(Bytes())));
  Same same;
  SameOf(const Read& read, std::uint8_t code) : same(read(hn::Set(Bytes(), code))) {}
  HWY_INLINE const Same& operator()(std::int64_t) const { return same; }
  HWY_INLINE const Same& first(std::int64_t, std::size_t) const { return same; }
};
struct CodesThemselves {
  HWY_INLINE hn::Vec<Bytes> operator()(hn::Vec<Bytes> codes) const { return codes; }
};

template <class Codes, class A, class B>
HWY_INLINE void binary_row(const Codes& codes, const A& a, const B& b, std::uint8_t* y, std::int64_t n) {
  const Bytes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(codes(a(i), b(i)), d, y + i);
  const auto rest = static_cast<std::size_t>(n - i);
  if (rest != 0) store_first(codes(a.first(i, rest), b.first(i, rest)), d, y + i, rest);
}

template <class Codes, class Read>
HWY_INLINE void binary_rows(const Codes& codes, const Read& of_a, const Read& of_b, const ByteOperand& a,
                            const ByteOperand& b, std::uint8_t* y, std::int64_t y_row, std::int64_t rows,
                            std::int64_t n) {
  for (std::int64_t row = 0; row < rows; ++row, y += y_row) {
    const std::uint8_t *const at_a = a.at + row * a.row, *const at_b = b.at + row * b.row;
    if (a.stride == 0)
      binary_row(codes, SameOf<Read>(of_a, *at_a), RowOf<Read>{of_b, at_b}, y, n);
    else if (b.stride == 0)
      binary_row(codes, RowOf<Read>{of_a, at_a}, SameOf<Read>(of_b, *at_b), y, n);
    else
      binary_row(codes, RowOf<Read>{of_a, at_a}, RowOf<Read>{of_b, at_b}, y, n);
  }
}

template <bool multiplies, class Divide>
HWY_INLINE void float_rows(const BinaryCodes& of, const ByteOperand& a, const ByteOperand& b, std::uint8_t* y,
                           std::int64_t y_row, std::int64_t rows, std::int64_t n) {
  binary_rows(CodesOf<multiplies, Divide>(of), NumbersOf(a), NumbersOf(b), a, b, y, y_row, rows, n);
}

#endif

void binary_kernel(const BinaryCodes& of, const ByteOperand& a, const ByteOperand& b, std::uint8_t* y,
                   std::int64_t y_row, std::int64_t rows, std::int64_t n) {
#if HWY_TARGET != HWY_SCALAR
  const bool known_strides = (a.stride == 1 && b.stride <= 1) || (a.stride == 0 && b.stride == 1);
  if (of.shift != 0 && known_strides)
    return binary_rows(FixedSum(of, a, b), CodesThemselves(), CodesThemselves(), a, b, y, y_row, rows, n);
  if (of.shift == 0 && NumbersOf::serves(a) && NumbersOf::serves(b) && known_strides) {
    if (ByReciprocal::serves(of.y_scale)) {
      if (of.multiplies) return float_rows<true, ByReciprocal>(of, a, b, y, y_row, rows, n);
      return float_rows<false, ByReciprocal>(of, a, b, y, y_row, rows, n);
    }
    if (of.y_scale >= 0x1p-100F && of.y_scale <= 0x1p100F) {
      if (of.multiplies) return float_rows<true, ByDivision>(of, a, b, y, y_row, rows, n);
      return float_rows<false, ByDivision>(of, a, b, y, y_row, rows, n);
    }
  }
#endif
  binary_rows_plain(of, a, b, y, y_row, rows, n);
}

#if HWY_TARGET != HWY_SCALAR
/// Sums of `vectors` vectors of channels from c on, the last of which overlap others where channels end.
template <int vectors>
HWY_INLINE void sum_vectors(const std::uint8_t* x, std::int64_t pixels, std::int64_t step, std::int64_t c,
                            std::int64_t channels, std::uint8_t flip, std::int32_t* sums) {
  const hn::ScalableTag<std::uint16_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const hn::Repartition<std::int32_t, decltype(d)> wide;
  const hn::Half<decltype(d)> half;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto flips = hn::Set(bytes, flip);
  std::int64_t at[vectors];
  for (int v = 0; v < vectors; ++v) {
    at[v] = std::min(c + v * lanes, channels - lanes);
    hn::StoreU(hn::Zero(wide), wide, sums + at[v]);
    hn::StoreU(hn::Zero(wide), wide, sums + at[v] + lanes / 2);
  }
  constexpr std::int64_t most = 256;  // sums of so many bytes fit 16 bits
  for (std::int64_t first = 0; first < pixels; first += most) {
    hn::Vec<decltype(d)> sum[vectors];
    for (int v = 0; v < vectors; ++v) sum[v] = hn::Zero(d);
    const std::int64_t end = std::min(pixels, first + most);
    for (std::int64_t i = first; i < end; ++i)
      for (int v = 0; v < vectors; ++v)
        sum[v] = hn::Add(sum[v], hn::PromoteTo(d, hn::Xor(hn::LoadU(bytes, x + i * step + at[v]), flips)));
    hn::Vec<decltype(wide)> low[vectors], high[vectors];  // all are read first, since vectors overlap
    for (int v = 0; v < vectors; ++v) {
      low[v] = hn::Add(hn::LoadU(wide, sums + at[v]), hn::PromoteTo(wide, hn::LowerHalf(half, sum[v])));
      high[v] = hn::Add(hn::LoadU(wide, sums + at[v] + lanes / 2), hn::PromoteTo(wide, hn::UpperHalf(half, sum[v])));
    }
    for (int v = 0; v < vectors; ++v) {
      hn::StoreU(low[v], wide, sums + at[v]);
      hn::StoreU(high[v], wide, sums + at[v] + lanes / 2);
    }
  }
}
#endif

void sum_pixels_kernel(const std::uint8_t* x, std::int64_t pixels, std::int64_t step, std::int64_t channels,
                       std::uint8_t flip, std::int32_t* sums) {
  std::int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<std::uint16_t>()));
  if (channels >= lanes) {
    for (; channels - c > 4 * lanes; c += 8 * lanes) sum_vectors<8>(x, pixels, step, c, channels, flip, sums);
    for (; c < channels; c += 2 * lanes) sum_vectors<2>(x, pixels, step, c, channels, flip, sums);
  }
#endif
  for (; c < channels; ++c) {
    sums[c] = 0;
    for (std::int64_t i = 0; i < pixels; ++i) sums[c] += x[i * step + c] ^ flip;
  }
}

std::int32_t sum_bytes_kernel(const std::uint8_t* x, std::int64_t n, std::uint8_t flip) {
  std::int64_t i = 0;
  std::uint64_t sum = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint8_t> d;
  const hn::Repartition<std::uint64_t, decltype(d)> wide;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(wide);
  const auto flips = hn::Set(d, flip);
  for (; i + lanes <= n; i += lanes) sums = hn::Add(sums, hn::SumsOf8(hn::Xor(hn::LoadU(d, x + i), flips)));
  const auto rest = static_cast<std::size_t>(n - i);
  if (rest != 0) {
    const auto last = hn::IfThenElseZero(hn::FirstN(d, rest), hn::Xor(load_first(d, x + i, rest), flips));
    sums = hn::Add(sums, hn::SumsOf8(last));
    i = n;
  }
  sum = hn::GetLane(hn::SumOfLanes(wide, sums));
#endif
  for (; i < n; ++i) sum += static_cast<std::uint64_t>(x[i] ^ flip);
  return static_cast<std::int32_t>(sum);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(binary_kernel);
HWY_EXPORT(sum_pixels_kernel);
HWY_EXPORT(sum_bytes_kernel);

void choose_fixed_point(BinaryCodes& of, const ByteOperand& a, const ByteOperand& b) {
  if (of.multiplies) return;
  const double ratios[] = {static_cast<double>(a.scale) / of.y_scale, static_cast<double>(b.scale) / of.y_scale};
  const double most = std::max(ratios[0], ratios[1]);
  int shift = 14 - std::ilogb(most);
  if (std::ldexp(most, shift) > 32767) --shift;
  if (shift < 14 || shift > 20) return;
  double offset = std::ldexp(of.y_zero_point + of.y_flip + 0.5, shift);
  bool exact = true;
  const std::int32_t zeros[] = {a.zero_point, b.zero_point};
  for (int i = 0; i < 2; ++i) {
    const double factor = std::ldexp(ratios[i], shift), rounded = std::nearbyint(factor);
    exact = exact && rounded == factor;
    of.factor[i] = static_cast<std::int16_t>(rounded);
    offset += (factor - rounded) * 128 - factor * zeros[i];
  }
  of.offset = static_cast<std::int32_t>(std::nearbyint(offset));
  of.shift = exact ? 0 : shift;
}

std::uint8_t binary_code(const BinaryCodes& of, const ByteOperand& a, std::uint8_t of_a, const ByteOperand& b,
                         std::uint8_t of_b) {
  if (of.shift != 0) {
    const std::int32_t sum = of.factor[0] * (of_a ^ a.flip) + of.factor[1] * (of_b ^ b.flip) + of.offset;
    return static_cast<std::uint8_t>(std::clamp((sum >> of.shift) - of.y_flip, of.least, of.most));
  }
  const auto number = [](const ByteOperand& operand, std::uint8_t code) {
    return static_cast<float>((code ^ operand.flip) - operand.zero_point) * operand.scale;
  };
  const float left = number(a, of_a), right = number(b, of_b);
  const float code =
      std::rint((of.multiplies ? left * right : left + right) / of.y_scale) + static_cast<float>(of.y_zero_point);
  const auto least = static_cast<float>(of.least), most = static_cast<float>(of.most);
  return static_cast<std::uint8_t>(static_cast<int>(code > least ? std::min(code, most) : least));
}

void binary_codes(const BinaryCodes& of, const ByteOperand& a, const ByteOperand& b, std::uint8_t* y,
                  std::int64_t y_row, std::int64_t rows, std::int64_t n) {
  // Short rows of one operand that all meet the same row of the other: many become one, beside a repeated row.
  constexpr std::int64_t most = 2048, least_repeats = 4;
  const auto run = HWY_DYNAMIC_DISPATCH(binary_kernel);
  const auto is_dense = [&](const ByteOperand& operand) { return operand.row == n && operand.stride == 1; };
  const auto is_repeated = [&](const ByteOperand& operand) { return operand.row == 0 && operand.stride == 1; };
  const bool repeats_a = is_repeated(a) && is_dense(b), repeats_b = is_repeated(b) && is_dense(a);
  if (y_row != n || n * least_repeats > most || rows < least_repeats || !(repeats_a || repeats_b))
    return run(of, a, b, y, y_row, rows, n);
  std::uint8_t repeated[most];
  const std::int64_t repeats = std::min(rows, most / n);
  for (std::int64_t i = 0; i < repeats; ++i) std::copy_n(repeats_a ? a.at : b.at, n, repeated + i * n);
  ByteOperand left = a, right = b;
  (repeats_a ? left : right).at = repeated;
  left.row = repeats_a ? 0 : repeats * n;
  right.row = repeats_a ? repeats * n : 0;
  const std::int64_t whole = rows / repeats, rest = rows % repeats * n;
  run(of, left, right, y, repeats * n, whole, repeats * n);
  left.at += whole * left.row;
  right.at += whole * right.row;
  if (rest != 0) run(of, left, right, y + whole * repeats * n, 0, 1, rest);
}

void sum_pixels(const std::uint8_t* x, std::int64_t pixels, std::int64_t step, std::int64_t channels, std::uint8_t flip,
                std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(sum_pixels_kernel)(x, pixels, step, channels, flip, sums);
}

std::int32_t sum_bytes(const std::uint8_t* x, std::int64_t n, std::uint8_t flip) {
  return HWY_DYNAMIC_DISPATCH(sum_bytes_kernel)(x, n, flip);
}

}  // namespace lenslet
#endif
