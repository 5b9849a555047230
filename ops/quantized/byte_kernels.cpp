#include "ops/quantized/byte_kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantized/byte_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/core/simd/divide-inl.h"
#include "ops/core/simd/first_bytes-inl.h"
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
  HWY_INLINE Four same(std::uint8_t code) const { return (*this)(hn::Set(Bytes(), code)); }

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

/// A row of an operand: `count` codes from `i` on, at most a vector; or the same number everywhere.
struct RowOf {
  const NumbersOf& numbers;
  const std::uint8_t* from;
  HWY_INLINE Four operator()(std::int64_t i) const { return numbers(hn::LoadU(Bytes(), from + i)); }
  HWY_INLINE Four first(std::int64_t i, std::size_t count) const {
    return numbers(load_first(Bytes(), from + i, count));
  }
};
struct SameOf {
  Four same;
  HWY_INLINE const Four& operator()(std::int64_t) const { return same; }
  HWY_INLINE const Four& first(std::int64_t, std::size_t) const { return same; }
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

template <bool multiplies, class Divide>
HWY_INLINE void binary_rows(const BinaryCodes& of, const ByteOperand& a, const ByteOperand& b, std::uint8_t* y,
                            std::int64_t y_row, std::int64_t rows, std::int64_t n) {
  const NumbersOf of_a(a), of_b(b);
  const CodesOf<multiplies, Divide> codes(of);
  for (std::int64_t row = 0; row < rows; ++row, y += y_row) {
    const std::uint8_t *const at_a = a.at + row * a.row, *const at_b = b.at + row * b.row;
    if (a.stride == 0)
      binary_row(codes, SameOf{of_a.same(*at_a)}, RowOf{of_b, at_b}, y, n);
    else if (b.stride == 0)
      binary_row(codes, RowOf{of_a, at_a}, SameOf{of_b.same(*at_b)}, y, n);
    else
      binary_row(codes, RowOf{of_a, at_a}, RowOf{of_b, at_b}, y, n);
  }
}

#endif

void binary_kernel(const BinaryCodes& of, const ByteOperand& a, const ByteOperand& b, std::uint8_t* y,
                   std::int64_t y_row, std::int64_t rows, std::int64_t n) {
#if HWY_TARGET != HWY_SCALAR
  const bool known_strides = (a.stride == 1 && b.stride <= 1) || (a.stride == 0 && b.stride == 1);
  if (NumbersOf::serves(a) && NumbersOf::serves(b) && known_strides) {
    if (ByReciprocal::serves(of.y_scale)) {
      if (of.multiplies) return binary_rows<true, ByReciprocal>(of, a, b, y, y_row, rows, n);
      return binary_rows<false, ByReciprocal>(of, a, b, y, y_row, rows, n);
    }
    if (of.y_scale >= 0x1p-100F && of.y_scale <= 0x1p100F) {
      if (of.multiplies) return binary_rows<true, ByDivision>(of, a, b, y, y_row, rows, n);
      return binary_rows<false, ByDivision>(of, a, b, y, y_row, rows, n);
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

std::uint8_t binary_code(const BinaryCodes& of, const ByteOperand& a, std::uint8_t of_a, const ByteOperand& b,
                         std::uint8_t of_b) {
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
