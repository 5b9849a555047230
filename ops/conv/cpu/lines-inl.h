// Inner kernels of ops/conv/cpu/lines.h, included by files that Highway compiles once per instruction set: the guard
// toggles for each target.
//
// A vector is 16 (AVX-512) output channels. Along a line each input vector is loaded once a window column and serves up
// to S output pixels of up to two rows: a 3x3 filter with 7 pixels and two rows has 9 loads and 42 FMAs. FMAs are the
// bound, two a cycle.
#if defined(LENSLET_OPS_CONV_CPU_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_OPS_CONV_CPU_LINES_INL_H_
#undef LENSLET_OPS_CONV_CPU_LINES_INL_H_
#else
#define LENSLET_OPS_CONV_CPU_LINES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/simd/bf16-inl.h"
#include "ops/conv/cpu/lines.h"
#include "ops/conv/taps_inside.h"
#include "ops/core/fused_clamp.h"
#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/over_channels-inl.h"
#include "ops/core/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using HWY_NAMESPACE::load, HWY_NAMESPACE::store;

// Registers: Px * Rows accumulators, S taps a row, one input. 7 pixels of two rows fit 32, 4 pixels fit 16. Images are
// 7 x 2^n wide.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
constexpr int most_of_two_rows = 4;
#else
constexpr int most_of_two_rows = 7;
#endif
constexpr int most = 7, few = 4;
/// For filters of any width: enough FMAs in flight to hide latency.
constexpr int any_pixels = 8;

// Partial vectors are loaded and stored through a mask where that touches nothing else. T: of x.
template <typename T>
constexpr bool masked = HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && std::is_same_v<T, float>);

template <bool part, class D>
HWY_INLINE hn::Vec<D> load(D d, hn::Mask<D> lanes, const float* from) {
  if constexpr (part) return hn::MaskedLoad(lanes, d, from);
  return hn::LoadU(d, from);
}
template <bool part, class D>
HWY_INLINE hn::Vec<D> load(D d, [[maybe_unused]] hn::Mask<D> lanes, const BFloat16* from) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (part) return widened(_mm256_maskz_loadu_epi16(lanes.raw, from));
#endif
  return load(d, from);
}
template <bool part, class D>
HWY_INLINE void store(D d, hn::Mask<D> lanes, hn::Vec<D> value, float* to) {
  if constexpr (part) return hn::BlendedStore(value, lanes, d, to);
  hn::StoreU(value, d, to);
}

/// ceil(count / step). Mostly step is 1, and a division takes longer than all other setup of a line.
HWY_INLINE std::int64_t parts(std::int64_t count, std::int64_t step) {
  return step == 1 ? count : (count + step - 1) / step;
}

/// Share of the FMA peak with filters 3, 5 and 7 wide (Zen 5; with 16 registers a block is 4 pixels).
inline double busy_share(std::int64_t stride) {
  const bool narrow = most_of_two_rows < most;
  return stride == 1 ? (narrow ? 0.65 : 0.9) : (narrow ? 0.5 : 0.75);
}

/// f(std::integral_constant<int, i>()) for i in [0, Count).
template <int Count, class F>
HWY_INLINE void each_of(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) HWY_ATTR { (f(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, Count>());
}

// Readers: where a vector of output channels finds its inputs. At a pixel a Reader gives input i of each lane's group.

/// Depthwise: one input channel an output channel.
struct OwnChannel {
  static constexpr bool several = false;  ///< more than one input an output
  static constexpr bool one_group = false;
  template <bool part, class D>
  struct Reader {
    HWY_INLINE Reader(D, std::int64_t, std::int64_t) {}
    template <typename T>
    HWY_INLINE hn::Vec<D> operator()(D d, hn::Mask<D> lanes, const T* at) const {
      return load<part>(d, lanes, at);
    }
  };
};

/// A vector spans several groups of `group_c` (a power of two) channels, in and out: inputs are loaded and permuted.
struct WithinVector {
  static constexpr bool several = true, one_group = false;
  template <bool part, class D>
  struct Reader {
    static HWY_INLINE auto lanes_of(D d, std::int64_t i, std::int64_t group_c) {
      const hn::RebindToSigned<D> di;
      const auto group = hn::And(hn::Iota(di, 0), hn::Set(di, -static_cast<std::int32_t>(group_c)));
      return hn::IndicesFromVec(d, hn::Add(group, hn::Set(di, static_cast<std::int32_t>(i))));
    }
    HWY_INLINE Reader(D d, std::int64_t i, std::int64_t group_c) : from(lanes_of(d, i, group_c)) {}
    HWY_INLINE hn::Vec<D> operator()(D d, hn::Mask<D> lanes, const float* at) const {
      return hn::TableLookupLanes(load<part>(d, lanes, at), from);
    }
    decltype(lanes_of(D(), 0, 0)) from;
  };
};

/// All lanes share a group; its input i is a scalar.
struct OneGroup {
  static constexpr bool several = true, one_group = true;
  template <bool part, class D>
  struct Reader {
    HWY_INLINE Reader(D, std::int64_t c, std::int64_t) : i(c) {}
    HWY_INLINE hn::Vec<D> operator()(D d, hn::Mask<D>, const float* at) const { return hn::Set(d, at[i]); }
    std::int64_t i;
  };
};

/// Common to all blocks of one line or two, for one vector of channels; pointers are at its first channel.
template <class D, typename T>
struct Sweep {
  hn::Vec<D> bias, low, high;
  hn::Mask<D> lanes;  ///< valid ones, if not all
  const float* w;
  std::int64_t k, block;        ///< strides in floats: output pixels; taps
  std::int64_t x_row, x_pixel;  ///< strides in elements: image rows that are read; pixels
  Rows columns;                 ///< to compute
  std::int64_t group_c, y_row;  ///< y_row: output row stride, also the residual's
  const T* x = nullptr;         ///< pixel 0 of the first image row read
  std::int64_t first = 0;       ///< tap row of the (first) output row that reads x; the second's is stride_h less
  std::int64_t x_rows = 0;      ///< rows read
  const float* residual = nullptr;
  float* y = nullptr;  ///< pixel 0 of the first output row, also the residual's
};

/// Window columns of a block outside of the image, left and right; -1: checked one by one. (Compilers spill the
/// accumulators across those branches: half the speed.)
template <int L, int R>
struct Outside {
  static constexpr bool any = L < 0;
  static constexpr int left = any ? 0 : L, right = any ? 0 : R;
};

/// Px pixels of Rows output rows, from pixel `q` on, `step` (the dilation) apart. Windows overlap: each input vector is
/// loaded once and used for up to S pixels a row. The first window begins at image column `left`. Products are added in
/// the order r, c, s in any block.
template <class Inputs, int S, int Stride, int Px, int Rows, class Out, bool part, class D, typename T>
LENSLET_TILE_INLINE void pixel_block(D d, const Sweep<D, T>& sweep, const ConvProblem& problem, std::int64_t q,
                                     std::int64_t left, std::int64_t step) {
  using V = hn::Vec<D>;
  constexpr int columns = (Px - 1) * Stride + S;
  // Local copies: to the compiler a float store might alias the references.
  const std::int64_t k = sweep.k, block = sweep.block, x_row = sweep.x_row, rows = sweep.x_rows, width = problem.w;
  const std::int64_t taps_h = problem.r, stride_h = problem.stride_h;
  const std::int64_t x_pixel = Inputs::several || !std::is_same_v<T, float> ? sweep.x_pixel : k,
                     x_step = step * x_pixel;
  const std::int64_t group_c = Inputs::several ? sweep.group_c : 1, w_row = group_c * S * block;
  const auto lanes = sweep.lanes;
  V acc[Rows][Px];
  HWY_UNROLL(2)
  for (int o = 0; o < Rows; ++o) {
    HWY_UNROLL(8)
    for (int i = 0; i < Px; ++i) acc[o][i] = Inputs::several ? hn::Zero(d) : sweep.bias;
  }
  // Left of the image nothing is read. (Offsets instead of pointers, here and for w: 3 to 10 % slower.)
  const T* row = sweep.x + left * x_pixel;
  const float* w = sweep.w + sweep.first * w_row;
  // Adds one image row to output rows [begin, end); w is at the first one's taps.
  const auto add_row = [&](auto first_row, auto last_row) HWY_ATTR {
    constexpr int begin = decltype(first_row)::value, end = decltype(last_row)::value;
    const float* w_c = w;
    for (std::int64_t c = 0; c < group_c; ++c, w_c += S * block) {
      const typename Inputs::template Reader<part, D> input(d, c, group_c);
      V tap[Rows][S];
      HWY_UNROLL(2)
      for (int o = begin; o < end; ++o) {
        HWY_UNROLL(8)
        for (int s = 0; s < S; ++s) tap[o][s] = load<part>(d, lanes, w_c + s * block - o * stride_h * w_row);
      }
      const T* at = row + Out::left * x_step;
      std::int64_t column = left;
      HWY_UNROLL(32)
      for (int j = Out::left; j < columns - Out::right; ++j, at += x_step, column += step) {
        if (Out::any && static_cast<std::uint64_t>(column) >= static_cast<std::uint64_t>(width)) continue;
        const V in = input(d, lanes, at);
        HWY_UNROLL(2)
        for (int o = begin; o < end; ++o) {
          HWY_UNROLL(8)
          for (int i = 0; i < Px; ++i) {
            const int s = j - i * Stride;
            if (s >= 0 && s < S) acc[o][i] = hn::MulAdd(in, tap[o][s], acc[o][i]);
          }
        }
      }
    }
  };
  using Zero = std::integral_constant<int, 0>;
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  for (std::int64_t i = 0, r = sweep.first; i < rows; ++i, ++r, row += x_row, w += w_row) {
    if constexpr (Rows == 1) {
      add_row(Zero(), One());
    } else if (r >= taps_h) {
      add_row(One(), Two());
    } else if (r < stride_h) {
      add_row(Zero(), One());
    } else {
      add_row(Zero(), Two());
    }
  }
  const float* residual = sweep.residual == nullptr ? nullptr : sweep.residual + q * k;
  float* y = sweep.y + q * k;
  const std::int64_t y_row = sweep.y_row;
  HWY_UNROLL(2)
  for (int o = 0; o < Rows; ++o) {
    // Bias after long sums, which are often exact without it (quantised values).
    if (Inputs::several) {
      HWY_UNROLL(8)
      for (int i = 0; i < Px; ++i) acc[o][i] = hn::Add(acc[o][i], sweep.bias);
    }
    if (residual != nullptr) {
      HWY_UNROLL(8)
      for (int i = 0; i < Px; ++i)
        acc[o][i] = hn::Add(acc[o][i], load<part>(d, lanes, residual + i * step * k + o * y_row));
    }
    HWY_UNROLL(8)
    for (int i = 0; i < Px; ++i)
      store<part>(d, lanes, at_most(sweep.high, at_least(sweep.low, acc[o][i])), y + i * step * k + o * y_row);
  }
}

/// With dilation (then stride 1) each residue class of pixels is an undilated line. A line's last block is shifted back
/// to be whole: what it computes twice is the same.
template <class Inputs, int S, int Stride, int Rows, bool part, class D, typename T>
HWY_INLINE void sweep_line(D d, const Sweep<D, T>& sweep, const ConvProblem& problem) {
  constexpr int wide = Rows == 1 ? most : most_of_two_rows;
  const std::int64_t step = problem.dilation_w;
  const std::int64_t end = sweep.columns.end;
  for (std::int64_t begin = sweep.columns.begin; begin < std::min(sweep.columns.begin + step, end); ++begin) {
    const std::int64_t count = parts(end - begin, step);
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t rest = count - done;
      // Not where the residual may be y: it would be added twice.
      const std::int64_t reach = sweep.residual == nullptr ? count : rest;
      const int width = rest > few && reach >= wide ? wide : rest > 1 && reach >= few ? few : 1;
      const std::int64_t first = std::min(done, count - width), q = begin + first * step;
      const std::int64_t left = q * Stride - problem.pad_left;
      const std::int64_t right = left + ((width - 1) * Stride + S - 1) * step - (problem.w - 1);
      // The usual number of padding columns.
      constexpr int at_left = S / 2, at_right = S / 2 - (Stride - 1);
      const bool left_usual = left + (at_left - 1) * step < 0 && left + at_left * step >= 0;
      const bool right_usual = at_right > 0 && right > (at_right - 1) * step && right <= at_right * step;
      if (width == 1)
        pixel_block<Inputs, S, Stride, 1, Rows, Outside<-1, -1>, part>(d, sweep, problem, q, left, step);
      else if (width != wide)
        pixel_block<Inputs, S, Stride, few, Rows, Outside<-1, -1>, part>(d, sweep, problem, q, left, step);
      else if (left >= 0 && right <= 0)
        pixel_block<Inputs, S, Stride, wide, Rows, Outside<0, 0>, part>(d, sweep, problem, q, left, step);
      else if (left_usual && right <= 0)
        pixel_block<Inputs, S, Stride, wide, Rows, Outside<at_left, 0>, part>(d, sweep, problem, q, left, step);
      else if (left >= 0 && right_usual)
        pixel_block<Inputs, S, Stride, wide, Rows, Outside<0, at_right>, part>(d, sweep, problem, q, left, step);
      else if (left_usual && right_usual)
        pixel_block<Inputs, S, Stride, wide, Rows, Outside<at_left, at_right>, part>(d, sweep, problem, q, left, step);
      else
        pixel_block<Inputs, S, Stride, wide, Rows, Outside<-1, -1>, part>(d, sweep, problem, q, left, step);
      done = first + width;
    }
  }
}

/// Px pixels of one row, from pixel `q` on, any filter: a tap is loaded once if it is inside for all pixels. Products
/// are added in the order r, c, s.
template <class Inputs, int Px, bool part, class D, typename T>
LENSLET_TILE_INLINE void any_block(D d, const Sweep<D, T>& sweep, const ConvProblem& problem, std::int64_t q) {
  const std::int64_t left = q * problem.stride_w - problem.pad_left, group_c = sweep.group_c;
  const std::int64_t pixel = problem.stride_w * sweep.x_pixel, x_tap = problem.dilation_w * sweep.x_pixel;
  // Taps [begin, end) are inside for all pixels.
  const std::int64_t begin = columns_inside(problem, q, q).begin;
  const std::int64_t end = std::max(begin, columns_inside(problem, q + Px - 1, q + Px - 1).end);
  hn::Vec<D> acc[Px];
  HWY_UNROLL(8)
  for (int i = 0; i < Px; ++i) acc[i] = Inputs::several ? hn::Zero(d) : sweep.bias;
  const float* HWY_RESTRICT w = sweep.w + sweep.first * group_c * problem.s * sweep.block;
  for (std::int64_t row = 0; row < sweep.x_rows; ++row) {
    const T* const x = sweep.x + row * sweep.x_row + left * sweep.x_pixel;
    for (std::int64_t c = 0; c < group_c; ++c, w += problem.s * sweep.block) {
      const typename Inputs::template Reader<part, D> input(d, c, group_c);
      const auto add_alone = [&](auto i, std::int64_t from, std::int64_t to) HWY_ATTR {
        for (std::int64_t s = from; s < to; ++s)
          acc[i] = hn::MulAdd(input(d, sweep.lanes, x + i * pixel + s * x_tap),
                              load<part>(d, sweep.lanes, w + s * sweep.block), acc[i]);
      };
      if constexpr (Px > 1) {
        if (begin > 0)
          each_of<Px>([&](auto i) HWY_ATTR {
            const Range inside = columns_inside(problem, q + i, q + i);
            add_alone(i, inside.begin, std::min(begin, inside.end));
          });
      }
      for (std::int64_t s = begin; s < end; ++s) {
        const auto tap = load<part>(d, sweep.lanes, w + s * sweep.block);
        const T* const at = x + s * x_tap;
        HWY_UNROLL(8)
        for (int i = 0; i < Px; ++i) acc[i] = hn::MulAdd(input(d, sweep.lanes, at + i * pixel), tap, acc[i]);
      }
      if constexpr (Px > 1) {
        if (end < problem.s)
          each_of<Px>([&](auto i) HWY_ATTR { add_alone(i, end, columns_inside(problem, q + i, q + i).end); });
      }
    }
  }
  const float* const residual = sweep.residual == nullptr ? nullptr : sweep.residual + q * sweep.k;
  HWY_UNROLL(8)
  for (int i = 0; i < Px; ++i) {
    if (Inputs::several) acc[i] = hn::Add(acc[i], sweep.bias);
    if (residual != nullptr) acc[i] = hn::Add(acc[i], load<part>(d, sweep.lanes, residual + i * sweep.k));
    store<part>(d, sweep.lanes, at_most(sweep.high, at_least(sweep.low, acc[i])), sweep.y + (q + i) * sweep.k);
  }
}

/// Any filter, one row.
template <class Inputs, bool part, class D, typename T>
HWY_INLINE void sweep_any_line(D d, const Sweep<D, T>& sweep, const ConvProblem& problem) {
  std::int64_t q = sweep.columns.begin;
  const std::int64_t end = sweep.columns.end;
  for (; q + any_pixels <= end; q += any_pixels) any_block<Inputs, any_pixels, part>(d, sweep, problem, q);
  for (; q + 2 <= end; q += 2) any_block<Inputs, 2, part>(d, sweep, problem, q);
  if (q < end) any_block<Inputs, 1, part>(d, sweep, problem, q);
}

/// Filters S columns wide; stride 1 with dilation.
template <int S, int Stride>
struct FixedLines {
  static constexpr bool pairs = true;
  template <class Inputs, int Rows, bool part, class D, typename T>
  static HWY_INLINE void sweep(D d, const Sweep<D, T>& sweep, const ConvProblem& problem) {
    sweep_line<Inputs, S, Stride, Rows, part>(d, sweep, problem);
  }
};

struct AnyLines {
  static constexpr bool pairs = false;
  template <class Inputs, int Rows, bool part, class D, typename T>
  static HWY_INLINE void sweep(D d, const Sweep<D, T>& sweep, const ConvProblem& problem) {
    sweep_any_line<Inputs, part>(d, sweep, problem);
  }
};

/// Activations other than clamps: over a line just stored, one vector of channels.
template <bool part, class D, typename T>
HWY_NOINLINE void activate_line(D d, const Sweep<D, T>& sweep, const ConvProblem& problem, std::int64_t rows) {
  with_activation(problem.activation, [&](auto act) HWY_ATTR {
    for (std::int64_t o = 0; o < rows; ++o) {
      float* at = sweep.y + o * sweep.y_row + sweep.columns.begin * sweep.k;
      for (std::int64_t q = sweep.columns.begin; q < sweep.columns.end; ++q, at += sweep.k)
        store<part>(d, sweep.lanes, act(d, load<part>(d, sweep.lanes, at)), at);
    }
  });
}

/// One vector of channels, from channel k of the block on; `end`: limit of what it may touch.
template <class Inputs, class Lines, bool part, class D, typename T>
void sweep_vector(D d, const LinesOf<T>& lines, const ConvProblem& problem, std::int64_t k, std::int64_t end) {
  const FusedClamp clamp(problem.activation);
  const auto lanes = hn::FirstN(d, static_cast<std::size_t>(end - k));
  Sweep<D, T> sweep{.bias = lines.bias == nullptr ? hn::Zero(d) : load<part>(d, lanes, lines.bias + k),
                    .low = hn::Set(d, clamp.low),
                    .high = hn::Set(d, clamp.high),
                    .lanes = lanes,
                    .w = lines.w + k,
                    .k = lines.y_pixel,
                    .block = lines.block,
                    .x_row = lines.x_row,
                    .x_pixel = lines.x_pixel,
                    .columns = lines.columns,
                    .group_c = lines.group_c,
                    .y_row = problem.q * lines.y_pixel};
  const std::int64_t x_k = Inputs::one_group ? k / lines.group_k * lines.group_c : k;
  const std::int64_t dilation = problem.dilation_h;
  for (std::int64_t p = lines.rows.begin, count = 0; p < lines.rows.end; p += count) {
    count = Lines::pairs && lines.pairs && p + 1 < lines.rows.end ? 2 : 1;
    // The windows' rows that are inside of the image.
    const std::int64_t top = p * problem.stride_h - problem.pad_top;
    const std::int64_t taps = problem.r + (count - 1) * problem.stride_h;
    sweep.first = top >= 0 ? 0 : std::min(taps, parts(-top, dilation));
    const std::int64_t last = top >= problem.h ? 0 : std::min(taps, parts(problem.h - top, dilation));
    sweep.x_rows = std::max<std::int64_t>(0, last - sweep.first);
    // Without rows nothing is read: any valid address will do.
    sweep.x = sweep.x_rows == 0
                  ? reinterpret_cast<const T*>(lines.w)
                  : lines.x.data + ((top - lines.x.first) * lines.x.row_floats + sweep.first * lines.x_row + x_k);
    sweep.residual = lines.residual == nullptr ? nullptr : lines.residual + p * sweep.y_row + k;
    sweep.y = lines.y.at(p) + k;
    if (Lines::pairs && count == 2)
      Lines::template sweep<Inputs, 2, part>(d, sweep, problem);
    else
      Lines::template sweep<Inputs, 1, part>(d, sweep, problem);
    if (clamp.after) activate_line<part>(d, sweep, problem, count);
  }
}

/// Vectors are the outer loop: their setup is paid once for all rows.
template <class Inputs, class Lines, typename T>
void over_vectors(const LinesOf<T>& lines, const ConvProblem& problem) {
  const hn::ScalableTag<float> whole;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(whole));
  const std::int64_t span = Inputs::one_group ? lines.group_k : lines.block;
  for (std::int64_t k = 0, end = span; k < lines.block; k = end, end += span) {
    for (; k + lanes <= end; k += lanes) sweep_vector<Inputs, Lines, false>(whole, lines, problem, k, end);
    if (k == end) continue;
    if constexpr (masked<T>)
      sweep_vector<Inputs, Lines, true>(whole, lines, problem, k, end);
    else  // in one form for all filters: else these vectors were half of the code
      over_channels(whole, k, end, [&](auto d, std::int64_t at) HWY_ATTR {
        sweep_vector<Inputs, AnyLines, false>(d, lines, problem, at, end);
      });
  }
}

/// depthwise's lines, where each output channel is an input channel's.
template <typename T>
void over_own_channels(const LinesOf<T>& lines, const ConvProblem& problem) {
  const bool even = problem.stride_w == 1, halved = problem.stride_w == 2 && problem.dilation_w == 1;
  if (even && problem.s == 3)
    over_vectors<OwnChannel, FixedLines<3, 1>>(lines, problem);
  else if (halved && problem.s == 3)
    over_vectors<OwnChannel, FixedLines<3, 2>>(lines, problem);
  else if (even && problem.s == 5)
    over_vectors<OwnChannel, FixedLines<5, 1>>(lines, problem);
  else if (halved && problem.s == 5)
    over_vectors<OwnChannel, FixedLines<5, 2>>(lines, problem);
  else if (even && problem.s == 7)
    over_vectors<OwnChannel, FixedLines<7, 1>>(lines, problem);
  else
    over_vectors<OwnChannel, AnyLines>(lines, problem);
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
