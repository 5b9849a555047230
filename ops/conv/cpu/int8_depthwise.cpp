// Depthwise convolutions of uint8 by int8 in nhwc, exact in int32, over vectors of channels (int8_depthwise.h).

#include "ops/conv/cpu/int8_depthwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/conv/cpu/int8_windows.h"

#define LENSLET_SIMD_BYTE_PRODUCTS
#include "base/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/int8_depthwise.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

#include "ops/core/simd/first_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<std::int32_t>;
using V = hn::Vec<D>;
using DF = hn::RebindToFloat<D>;
using D8 = hn::Rebind<std::uint8_t, D>;

std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

// VNNI multiplies bytes; other targets multiply pairs of 16-bit integers, whose products fit.
#undef LENSLET_DEPTHWISE_VNNI
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
#define LENSLET_DEPTHWISE_VNNI 1
#else
#define LENSLET_DEPTHWISE_VNNI 0
#endif
std::int64_t word_k() { return LENSLET_DEPTHWISE_VNNI ? 4 : 2; }

/// Replaces one element of each word by a byte.
class Merge {
 public:
#if LENSLET_DEPTHWISE_VNNI
  explicit Merge(int position)
      : mask_(0x1111111111111111ULL << position),
        from_(_mm512_shuffle_epi8(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                  _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0))) {}
  HWY_INLINE V operator()(V words, hn::Vec<D8> bytes) const {
    return V{_mm512_mask_permutexvar_epi8(words.raw, mask_, from_, _mm512_castsi128_si512(bytes.raw))};
  }

 private:
  const __mmask64 mask_;
  const __m512i from_;
#else
  explicit Merge(int position) : position_(position) {}
  HWY_INLINE V operator()(V words, hn::Vec<D8> bytes) const {
    const D d;
    const V element = hn::PromoteTo(d, bytes);
    if (position_ == 0) return hn::Or(hn::AndNot(hn::Set(d, 0xFFFF), words), element);
    return hn::Or(hn::And(hn::Set(d, 0xFFFF), words), hn::ShiftLeft<16>(element));
  }

 private:
  const int position_;
#endif
};

template <int rows>
void merge(const DepthwiseColumns& columns, const DepthwiseInput& row) {
  const D d;
  const D8 d8;
  const Merge first_row(row.positions[0]), second_row(row.positions[1]);
  const std::int64_t whole = row.channels / lanes() * lanes();
  const auto rest = static_cast<std::size_t>(row.channels - whole);
  const auto load_rest = [&](const std::uint8_t* from) HWY_ATTR {
    return row.end - from >= lanes() ? hn::LoadU(d8, from) : load_first(d8, from, rest);
  };
  for (std::int64_t part = 0; part < columns.stride; ++part) {
    const std::int64_t first = columns.first(part), end = columns.end(part);
    std::int32_t* to = row.words + (part * columns.part + first) * columns.channels;
    std::int64_t from = (first * columns.stride + part - columns.pad) * row.pixel;
    // One long column where channels adjoin.
    const bool adjoin = columns.stride == 1 && row.pixel == columns.channels;
    const std::int64_t count = adjoin ? 1 : end - first, length = adjoin ? (end - first) * row.pixel : whole;
    for (std::int64_t j = 0; j < count; ++j, to += columns.channels, from += columns.stride * row.pixel) {
      const std::uint8_t *const x = row.x[0] + from, *const other = row.x[rows - 1] + from;
      for (std::int64_t c = 0; c < length; c += lanes()) {
        V words = first_row(hn::Load(d, to + c), hn::LoadU(d8, x + c));
        if constexpr (rows == 2) words = second_row(words, hn::LoadU(d8, other + c));
        hn::Store(words, d, to + c);
      }
      if (rest == 0) continue;
      V words = first_row(hn::Load(d, to + whole), load_rest(x + whole));
      if constexpr (rows == 2) words = second_row(words, load_rest(other + whole));
      hn::Store(words, d, to + whole);
    }
  }
}

void merge_rows(const DepthwiseColumns& columns, const DepthwiseInput& row) {
  if (row.rows == 2) return merge<2>(columns, row);
  if (row.x[0] != nullptr) return merge<1>(columns, row);
  const D d;
  const Merge merge(row.positions[0]);
  const auto outside = hn::Set(D8(), row.outside);
  for (std::int32_t *to = row.words, *end = to + columns.stride * columns.part * columns.channels; to < end;
       to += lanes())
    hn::Store(merge(hn::Load(d, to), outside), d, to);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void multiply_add(V x, V w, V& sum, V&) {
  const auto half = [](V v, int i) { return static_cast<std::int16_t>(static_cast<std::uint32_t>(v.raw) >> (16 * i)); };
  sum.raw += half(x, 0) * half(w, 0) + half(x, 1) * half(w, 1);
}
HWY_INLINE V total(V sum, V) { return sum; }
#elif LENSLET_DEPTHWISE_VNNI
/// By hand: Highway has it only from 1.1 on.
HWY_INLINE void multiply_add(V x, V w, V& sum, V&) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
}
HWY_INLINE V total(V sum, V) { return sum; }
#else
// On x86 one instruction adds up pairs; elsewhere the second accumulator takes a share.
HWY_INLINE void multiply_add(V x, V w, V& sum, V& rest) {
  const hn::Repartition<std::int16_t, D> d16;
  sum = hn::ReorderWidenMulAccumulate(D(), hn::BitCast(d16, x), hn::BitCast(d16, w), sum, rest);
}
HWY_INLINE V total(V sum, V rest) { return hn::RearrangeToOddPlusEven(sum, rest); }
#endif

constexpr int block = depthwise_slack_columns;

/// Stores the codes of the first `columns` of `block` outputs of a vector of channels.
#if LENSLET_DEPTHWISE_VNNI
template <bool below_one>
class Store {
 public:
  explicit Store(const DepthwiseOutput& row)
      : zero_(_mm512_set1_epi16(static_cast<std::int16_t>(row.zero_point))),
        least_(_mm512_set1_epi8(static_cast<char>(row.least))),
        most_(_mm512_set1_epi8(static_cast<char>(row.most))),
        flip_(_mm512_set1_epi8(static_cast<char>(row.flip))),
        y_pixel_(row.y_pixel) {}

  HWY_INLINE void operator()(const V* sums, hn::Vec<DF> factor, std::int64_t columns, std::uint8_t* y,
                             std::int64_t channels) const {
    const auto rounded = [&](V sum) HWY_ATTR {
      __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sum.raw), factor.raw);
      // What is too small becomes the least integer, what is too large would, too.
      if constexpr (!below_one) value = _mm512_min_ps(_mm512_set1_ps(1 << 20), value);
      return _mm512_cvtps_epi32(value);
    };
    const __m512i first = _mm512_adds_epi16(_mm512_packs_epi32(rounded(sums[0]), rounded(sums[1])), zero_);
    const __m512i second = _mm512_adds_epi16(_mm512_packs_epi32(rounded(sums[2]), rounded(sums[3])), zero_);
    __m512i codes = _mm512_min_epu8(_mm512_max_epu8(_mm512_packus_epi16(first, second), least_), most_);
    codes = _mm512_xor_si512(codes, flip_);
    codes = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), codes);
    const __m128i pixels[] = {_mm512_castsi512_si128(codes), _mm512_extracti32x4_epi32(codes, 1),
                              _mm512_extracti32x4_epi32(codes, 2), _mm512_extracti32x4_epi32(codes, 3)};
    if (columns >= block && channels >= 16) {
      for (const __m128i pixel : pixels) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(y), pixel);
        y += y_pixel_;
      }
      return;
    }
    const auto mask = static_cast<__mmask16>(channels >= 16 ? 0xFFFF : (1 << channels) - 1);
    for (int i = 0; i < block; ++i)
      if (i < columns) _mm_mask_storeu_epi8(y + i * y_pixel_, mask, pixels[i]);
  }

 private:
  const __m512i zero_, least_, most_, flip_;
  const std::int64_t y_pixel_;
};
#else
template <bool>
class Store {
 public:
  explicit Store(const DepthwiseOutput& row)
      // Bounds are whole, so that they may come before the rounding.
      : least_(hn::Set(DF(), static_cast<float>(row.least - row.zero_point))),
        most_(hn::Set(DF(), static_cast<float>(row.most - row.zero_point))),
        zero_(hn::Set(D(), row.zero_point)),
        flip_(hn::Set(D8(), row.flip)),
        y_pixel_(row.y_pixel) {}

  HWY_INLINE void operator()(const V* sums, hn::Vec<DF> factor, std::int64_t columns, std::uint8_t* y,
                             std::int64_t channels) const {
    const D8 d8;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(columns, block); ++i, y += y_pixel_) {
      const auto value = hn::Min(hn::Max(hn::Mul(hn::ConvertTo(DF(), sums[i]), factor), least_), most_);
      const auto bytes = hn::Xor(hn::DemoteTo(d8, hn::Add(hn::NearestInt(value), zero_)), flip_);
      if (channels >= lanes())
        hn::StoreU(bytes, d8, y);
      else
        store_first(bytes, d8, y, static_cast<std::size_t>(channels));
    }
  }

 private:
  const hn::Vec<DF> least_, most_;
  const V zero_;
  const hn::Vec<D8> flip_;
  const std::int64_t y_pixel_;
};
#endif

template <int rows, bool below_one>
void convolve(const DepthwiseOutput& row) {
  const D d;
  const Store<below_one> store(row);
  // Stores to y might change what `row` holds, for all that the compiler knows.
  const std::int64_t word_pixel = row.word_pixel, columns = row.columns, channels = row.channels;
  const std::int64_t taps = row.tap_count, y_step = block * row.y_pixel;
  const std::int64_t* const at = row.taps;
  const std::int32_t* filters[rows];
  for (int r = 0; r < rows; ++r) filters[r] = row.filters[r];
  for (std::int64_t c = 0; c < channels; c += lanes()) {
    const V start = hn::Load(d, row.start + c);
    const auto factor = hn::Load(DF(), row.multipliers + c);
    const std::int32_t* words = row.words + c;
    std::uint8_t* y[rows];
    for (int r = 0; r < rows; ++r) y[r] = row.y[r] + c;
    for (std::int64_t q = 0; q < columns; q += block, words += block * word_pixel) {
      V sums[rows][block], rests[rows][block];
      for (int r = 0; r < rows; ++r)
        for (int i = 0; i < block; ++i) sums[r][i] = start, rests[r][i] = hn::Zero(d);
      for (std::int64_t t = 0; t < taps; ++t) {
        V w[rows];
        for (int r = 0; r < rows; ++r) w[r] = hn::Load(d, filters[r] + t * lanes());
        const std::int32_t* const x = words + at[t];
        for (int i = 0; i < block; ++i) {
          const V of_x = hn::Load(d, x + i * word_pixel);
          for (int r = 0; r < rows; ++r) multiply_add(of_x, w[r], sums[r][i], rests[r][i]);
        }
      }
      for (int r = 0; r < rows; ++r, y[r - 1] += y_step) {
        for (int i = 0; i < block; ++i) sums[r][i] = total(sums[r][i], rests[r][i]);
        store(sums[r], factor, columns - q, y[r], channels - c);
      }
    }
    for (int r = 0; r < rows; ++r) filters[r] += taps * lanes();
  }
}

void convolve_rows(const DepthwiseOutput& row) {
  if (row.rows == 2) return row.below_one ? convolve<2, true>(row) : convolve<2, false>(row);
  row.below_one ? convolve<1, true>(row) : convolve<1, false>(row);
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
namespace {

HWY_EXPORT(lanes);
HWY_EXPORT(word_k);
HWY_EXPORT(merge_rows);
HWY_EXPORT(convolve_rows);

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Sizes of a problem for this CPU. The filters: a summand a channel, -x_zero_point * sum(w), whole vectors; then for
/// each rotation of the ring [vectors][groups][S][lanes] words.
struct Layout {
  std::int64_t lanes = HWY_DYNAMIC_DISPATCH(lanes)(), word_k = HWY_DYNAMIC_DISPATCH(word_k)();
  std::int64_t groups, ring;  ///< words for a window's rows, and the rows that these hold
  bool rotates;               ///< rows are kept from one output row to the next, which costs filters
  static constexpr std::int64_t most_rotated = 8;
  bool pairs;  ///< the ring has the rows of two output rows
  std::int64_t taps, channels, rotation_words;

  explicit Layout(const ConvProblem& p)
      : groups((p.r + word_k - 1) / word_k),
        ring(groups * word_k),
        rotates(p.dilation_h == 1 && p.r <= most_rotated),
        pairs(rotates && p.r + p.stride_h <= ring),
        taps(groups * p.s),
        channels(round_up(p.c, lanes)),
        rotation_words(channels * taps) {}
  std::int64_t rotations() const { return rotates ? ring : 1; }
  std::int64_t words() const { return channels + rotations() * rotation_words; }
};

/// How the work is split: some channels, whose ring stays in L1, of some rows.
struct Pieces {
  DepthwiseColumns columns;
  std::int64_t channels, blocks;  ///< of a block
  std::int64_t rows, row_blocks;
  std::int64_t group_words, ring_bytes;

  Pieces(const ConvProblem& p, const Layout& layout, int threads) {
    constexpr std::int64_t most_bytes = 36 << 10;
    columns = {.stride = p.stride_w, .pad = p.pad_left, .image = p.w};
    // Outputs and the image, whichever ends later.
    const std::int64_t last = std::max((p.q - 1) * p.stride_w + (p.s - 1) * p.dilation_w, p.pad_left + p.w - 1);
    columns.part = last / p.stride_w + 1;
    const std::int64_t of_channel = layout.groups * p.stride_w * columns.part * 4;
    const std::int64_t most = std::max(4 * layout.lanes, most_bytes / of_channel / layout.lanes * layout.lanes);
    blocks = (layout.channels + most - 1) / most;
    if (layout.channels >= 4 * layout.lanes * threads) blocks = std::max<std::int64_t>(blocks, threads);
    channels = round_up((layout.channels + blocks - 1) / blocks, layout.lanes);
    blocks = (layout.channels + channels - 1) / channels;
    columns.channels = channels;
    group_words = p.stride_w * columns.part * channels;
    ring_bytes = (layout.groups * group_words + depthwise_slack_columns * channels) * 4;
    // Some pieces for each thread; short ones would read many rows twice.
    constexpr std::int64_t least_rows = 8;
    const std::int64_t wanted = threads == 1 ? 1 : (3 * threads + p.n * blocks - 1) / (p.n * blocks);
    row_blocks = std::clamp<std::int64_t>(p.p / least_rows, 1, wanted);
    rows = (p.p + row_blocks - 1) / row_blocks;
    row_blocks = (p.p + rows - 1) / rows;
  }
  std::size_t worker_bytes() const { return static_cast<std::size_t>(round_up(ring_bytes + channels * 4, 64)); }
};

class Bound final : public BoundConv {
 public:
  Bound(const ConvProblem& p, int threads) : Bound(p, Layout(p), threads) {}

 private:
  Bound(const ConvProblem& p, const Layout& layout, int threads)
      : Bound(p, layout, Pieces(p, layout, threads), threads) {}
  Bound(const ConvProblem& p, const Layout& layout, const Pieces& pieces, int threads)
      : BoundConv(p, static_cast<std::size_t>(threads) * pieces.worker_bytes()), layout_(layout), pieces_(pieces) {
    for (std::int64_t group = 0; group < layout.groups; ++group)
      for (std::int64_t s = 0; s < p.s; ++s) {
        const std::int64_t column = s * p.dilation_w, part = column % p.stride_w, first = column / p.stride_w;
        taps_.push_back(group * pieces.group_words + (part * pieces.columns.part + first) * pieces.channels);
      }
  }

  void compute(const ConvRun& run) const override {
    const std::int64_t of_image = pieces_.blocks * pieces_.row_blocks;
    run.pool->parallel_for(problem.n * of_image, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      std::byte* const scratch = run.workspace.data() + static_cast<std::size_t>(worker) * pieces_.worker_bytes();
      for (std::int64_t i = begin; i < end; ++i)
        compute_rows(run, i / of_image, i / pieces_.row_blocks % pieces_.blocks, i % pieces_.row_blocks,
                     reinterpret_cast<std::int32_t*>(scratch));
    });
  }

  void compute_rows(const ConvRun& run, std::int64_t image, std::int64_t block, std::int64_t row_block,
                    std::int32_t* ring) const {
    const ConvProblem& p = problem;
    const std::int64_t first = block * pieces_.channels;
    const std::int32_t* const packed = run.filter<std::int32_t>();
    DepthwiseOutput to;
    to.channels = std::min(pieces_.channels, p.c - first);
    std::int32_t* const start = ring + pieces_.ring_bytes / 4;
    const auto* const bias = run.bias<std::int32_t>();
    for (std::int64_t c = 0; c < to.channels; ++c) {
      const auto add = bias == nullptr ? 0U : static_cast<std::uint32_t>(bias[first + c]);
      start[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(packed[first + c]) + add);
    }
    std::fill(start + to.channels, start + pieces_.channels, 0);
    fill_pads(ring);
    to.words = ring;
    to.taps = taps_.data();
    to.tap_count = layout_.taps;
    to.start = start;
    to.multipliers = run.requantization.multipliers + first;
    to.below_one = std::all_of(to.multipliers, to.multipliers + to.channels, [](float m) { return std::abs(m) < 1; });
    to.word_pixel = pieces_.channels;
    to.columns = p.q;
    to.y_pixel = run.y_pixel;
    const bool is_signed = p.storage == DType::i8;
    const std::int32_t offset = is_signed ? 128 : 0;
    to.zero_point = p.y_zero_point + offset;
    to.least = std::clamp(p.y_least + offset, 0, 255);
    to.most = std::clamp(p.y_most + offset, 0, 255);
    to.flip = is_signed ? 0x80 : 0;
    const std::int64_t begin = row_block * pieces_.rows, end = std::min(p.p, begin + pieces_.rows);
    std::int64_t merged = begin * p.stride_h;  // rows of the padded image before this one are in the ring
    for (std::int64_t row = begin; row < end; row += to.rows) {
      to.rows = layout_.pairs && row + 1 < end ? 2 : 1;
      const std::int64_t top = row * p.stride_h, height = p.r + (to.rows - 1) * p.stride_h;
      std::int64_t r = layout_.rotates ? std::max<std::int64_t>(0, merged - top) : 0;
      while (r < height) r += merge(run, image, first, to.channels, row, r, height, ring);
      merged = top + height;
      for (int i = 0; i < to.rows; ++i) {
        const std::int64_t rotation = layout_.rotates ? (top + i * p.stride_h) % layout_.ring : 0;
        to.filters[i] = packed + layout_.channels + rotation * layout_.rotation_words + first * layout_.taps;
        to.y[i] = run.y<std::uint8_t>() + (image * p.p + row + i) * p.q * run.y_pixel + first;
      }
      HWY_DYNAMIC_DISPATCH(convolve_rows)(to);
    }
  }

  void fill_pads(std::int32_t* ring) const {
    const auto zero = static_cast<std::uint32_t>(problem.x_zero_point);
    const auto outside = static_cast<std::int32_t>(zero * (layout_.word_k == 4 ? 0x01010101U : 0x00010001U));
    const DepthwiseColumns& columns = pieces_.columns;
    for (std::int64_t i = 0; i < layout_.groups * columns.stride; ++i, ring += columns.part * columns.channels) {
      std::fill_n(ring, columns.first(i % columns.stride) * columns.channels, outside);
      std::fill(ring + columns.end(i % columns.stride) * columns.channels, ring + columns.part * columns.channels,
                outside);
    }
  }

  /// Merges row r of the window, and the next one if that goes into the same words. Returns how many.
  int merge(const ConvRun& run, std::int64_t image, std::int64_t first, std::int64_t channels, std::int64_t row,
            std::int64_t r, std::int64_t height, std::int32_t* ring) const {
    const ConvProblem& p = problem;
    const auto* const x = run.x<std::uint8_t>();
    DepthwiseInput of;
    std::int64_t groups[2];
    for (int i = 0; i < 2; ++i) {
      const std::int64_t padded = row * p.stride_h + (r + i) * p.dilation_h, h = padded - p.pad_top;
      const std::int64_t slot = layout_.rotates ? padded % layout_.ring : r + i;
      if (h >= 0 && h < p.h) of.x[i] = x + (image * p.h + h) * p.w * p.c + first;
      of.positions[i] = static_cast<int>(slot % layout_.word_k);
      groups[i] = slot / layout_.word_k;
    }
    if (r + 1 < height && groups[0] == groups[1] && of.x[0] != nullptr && of.x[1] != nullptr) of.rows = 2;
    of.end = x + p.n * p.h * p.w * p.c;
    of.pixel = p.c;
    of.channels = channels;
    of.outside = static_cast<std::uint8_t>(p.x_zero_point);
    of.words = ring + groups[0] * pieces_.group_words;
    HWY_DYNAMIC_DISPATCH(merge_rows)(pieces_.columns, of);
    return of.rows;
  }

  const Layout layout_;
  const Pieces pieces_;
  std::vector<std::int64_t> taps_;
};

class Int8Depthwise final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "int8_depthwise"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  DTypeSet types() const override { return dtypes<Types<std::uint8_t, std::int8_t>>; }

 private:
  DType filter_type() const override { return DType::i8; }
  DType accumulator_type() const override { return DType::i32; }

  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (auto why = refuse_more_than_codes(p)) return why;
    if (p.x_storage != DType::u8)
      return fmt::format("its input is {}; only uint8 is supported", to_string(p.x_storage));
    if (p.groups != p.c || p.k != p.c) return "it has other filters than one a channel";
    if (p.x_zero_point < 0 || p.x_zero_point > 255) return "x_zero_point is no uint8";
    if (p.y_least > p.y_most) return "its range of codes is empty";
    if (Pieces(p, Layout(p), 1).ring_bytes > 64 << 20) return "a row of words of some channels exceeds 64 MiB";
    return std::nullopt;
  }

  // Instructions of a vector of outputs: its taps, some to requantize and store it, some for each vector of x that
  // goes into words; two at a time, as multiply-adds, whose rate the profile has.
  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const Layout layout(p);
    constexpr double to_store = 7, to_merge = 4;
    const double vectors = static_cast<double>(p.n * layout.channels) / static_cast<double>(layout.lanes);
    const double merges = static_cast<double>(layout.rotates ? p.h : p.p * p.r) * static_cast<double>(p.w);
    const double instructions =
        vectors * (static_cast<double>(p.p * p.q) * (static_cast<double>(layout.taps) + to_store) + to_merge * merges);
    ConvCandidate candidate;
    candidate.pitched = true;
    candidate.estimated_us = 1 +
                             instructions * 2 * static_cast<double>(layout.lanes) / target.device.fp32_flops_per_us +
                             p.bytes() / (4 * target.device.bytes_per_us);
    return candidate;
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    const Layout layout(p);
    return {.elements = layout.words(),
            .form = fmt::format("{} lanes of {}", layout.lanes, layout.word_k),
            .element_bytes = sizeof(std::int32_t)};
  }

  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> to) const override {
    const Layout layout(p);
    std::memset(to.data(), 0, to.size());
    auto* const corrections = reinterpret_cast<std::int32_t*>(to.data());
    for (std::int64_t c = 0; c < p.c; ++c) {
      const std::int8_t* const w = filter.elements<std::int8_t>() + c * p.r * p.s;
      const std::int64_t sum = std::accumulate(w, w + p.r * p.s, std::int64_t{0});
      corrections[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(-p.x_zero_point * sum));
      for (std::int64_t rotation = 0; rotation < layout.rotations(); ++rotation)
        for (std::int64_t r = 0; r < p.r; ++r)
          for (std::int64_t s = 0; s < p.s; ++s) {
            const std::int64_t slot = (rotation + r) % layout.ring;
            const std::int64_t tap = c / layout.lanes * layout.taps + slot / layout.word_k * p.s + s;
            std::int32_t* const word = corrections + layout.channels + rotation * layout.rotation_words +
                                       tap * layout.lanes + c % layout.lanes;
            if (layout.word_k == 4)
              reinterpret_cast<std::int8_t*>(word)[slot % 4] = w[r * p.s + s];
            else
              reinterpret_cast<std::int16_t*>(word)[slot % 2] = w[r * p.s + s];
          }
    }
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile& device) const override {
    return std::make_unique<Bound>(p, device.units);
  }
};

}  // namespace

const Kernel& conv_int8_depthwise() {
  static const Int8Depthwise algorithm;
  return algorithm;
}

}  // namespace lenslet
#endif
