#pragma once
// Pools with side x side windows without dilation, which nearly all networks have: unrolled, with all loads in flight
// at once.

#include <algorithm>

#include "base/cuda/launch.h"
#include "ops/pool/pool_folds.cuh"

namespace lenslet::cuda {
namespace {

struct SquareAxis {
  int in, stride, pad_begin, pad_end;

  explicit SquareAxis(const PoolAxis& axis)
      : in(static_cast<int>(axis.in)),
        stride(static_cast<int>(axis.stride)),
        pad_begin(static_cast<int>(axis.pad_begin)),
        pad_end(static_cast<int>(axis.pad_end)) {}
};
struct SquareProblem {
  Outputs outputs;
  SquareAxis high, wide;
};

/// One output per thread, up to 56 registers. Without the minimum number of blocks the compiler saves registers and
/// serialises the window's lines.
template <typename Fold, int side, typename After = AsItIs>
__global__ void __launch_bounds__(threads, 4)
    pool_square(const typename Fold::Stored* x, typename Fold::Stored* y, const __grid_constant__ SquareProblem p,
                PoolKind kind, const After after) {
  using Value = typename Fold::Value;
  using Stored = typename Fold::Stored;
  wait_for_previous();
  let_next_start();
  const std::int64_t output = thread_index();
  if (output >= p.outputs.count) return;
  const Outputs::Place at = p.outputs.place(output, true);
  const int top = static_cast<int>(at.line) * p.high.stride - p.high.pad_begin;
  const int left = static_cast<int>(at.column) * p.wide.stride - p.wide.pad_begin;
  // Offsets from the window's corner, which may be outside of the image, fit 32 bits (is_square).
  const auto pixel = static_cast<int>(p.outputs.pixel.x);
  const int line = p.wide.in * pixel;
  const Stored* corner = x + at.image * p.high.in * line + at.channel + (top * line + left * pixel);
  Stored values[side][side];
  const Stored start = as_stored<Stored>(Fold::start());
  int lines = 0, columns = 0;
#pragma unroll
  for (int r = 0; r < side; ++r) {
    const bool on_line = top + r >= 0 && top + r < p.high.in;
    lines += on_line ? 1 : 0;
#pragma unroll
    for (int s = 0; s < side; ++s) {
      const bool inside = on_line && left + s >= 0 && left + s < p.wide.in;
      values[r][s] = inside ? corner[r * line + s * pixel] : start;
    }
  }
  Value total = Fold::start();
#pragma unroll
  for (int r = 0; r < side; ++r) {
    Value partial = value_of<Value>(values[r][0]);
#pragma unroll
    for (int s = 1; s < side; ++s) partial = Fold::join(partial, value_of<Value>(values[r][s]));
    total = Fold::join(total, partial);
  }
  if constexpr (Fold::sums) {
#pragma unroll
    for (int s = 0; s < side; ++s) columns += left + s >= 0 && left + s < p.wide.in ? 1 : 0;
    if (kind == PoolKind::average_with_pads) {
      lines = min(side, p.high.in + p.high.pad_end - top);
      columns = min(side, p.wide.in + p.wide.pad_end - left);
    }
    total = total / static_cast<float>(max(1, lines * columns));
  }
  y[at.stored] = as_stored<Stored>(after(total, at));
}

/// Windows of stride 1 in height: a thread computes several lines of outputs and reads each input line once, not `side`
/// times. `lines`: per thread; outputs.lines counts such strips, outputs.count threads.
template <typename Fold, int side>
__global__ void __launch_bounds__(threads, 4)
    pool_strip(const typename Fold::Stored* x, typename Fold::Stored* y, const __grid_constant__ SquareProblem p,
               PoolKind kind, int lines, int out_lines) {
  using Value = typename Fold::Value;
  using Stored = typename Fold::Stored;
  wait_for_previous();
  let_next_start();
  const std::int64_t strip = thread_index();
  if (strip >= p.outputs.count) return;
  const Outputs::Place at = p.outputs.place(strip, true);
  const int first = static_cast<int>(at.line) * lines, last = min(first + lines, out_lines);
  const int left = static_cast<int>(at.column) * p.wide.stride - p.wide.pad_begin;
  const auto pixel = static_cast<int>(p.outputs.pixel.x);
  const int line_elems = p.wide.in * pixel;
  const Stored* const corner = x + at.image * p.high.in * line_elems + at.channel + left * pixel;
  const Stored start = as_stored<Stored>(Fold::start());
  const auto columns_line = static_cast<std::int64_t>(p.outputs.line.value);
  Stored* to = y + ((at.image * out_lines + first) * columns_line + at.column) * p.outputs.pixel.y + at.channel;
  int columns = 0;
#pragma unroll
  for (int s = 0; s < side; ++s) columns += left + s >= 0 && left + s < p.wide.in ? 1 : 0;
  if (kind == PoolKind::average_with_pads) columns = min(side, p.wide.in + p.wide.pad_end - left);

  // Folds each of `count` input lines from `from` on.
  const auto fold_lines = [&]<int count>(int from, Value(&folded)[count]) {
    Stored values[count][side];
#pragma unroll
    for (int r = 0; r < count; ++r)
#pragma unroll
      for (int s = 0; s < side; ++s) {
        const int line = from + r;
        const bool inside = line >= 0 && line < p.high.in && left + s >= 0 && left + s < p.wide.in;
        values[r][s] = inside ? corner[line * line_elems + s * pixel] : start;
      }
#pragma unroll
    for (int r = 0; r < count; ++r) {
      folded[r] = value_of<Value>(values[r][0]);
#pragma unroll
      for (int s = 1; s < side; ++s) folded[r] = Fold::join(folded[r], value_of<Value>(values[r][s]));
    }
  };

  constexpr int kept = side - 1, fresh = 2;  // lines that the next outputs read again, and that are read at once
  Value folded[kept + fresh];
  const int top = first - p.high.pad_begin;
  {
    Value before[kept];
    fold_lines(top, before);
#pragma unroll
    for (int r = 0; r < kept; ++r) folded[r] = before[r];
  }
  for (int out = first; out < last; out += fresh) {
    {
      Value more[fresh];
      fold_lines(out - p.high.pad_begin + kept, more);
#pragma unroll
      for (int r = 0; r < fresh; ++r) folded[kept + r] = more[r];
    }
#pragma unroll
    for (int r = 0; r < fresh; ++r) {
      if (out + r >= last) break;
      Value total = Fold::start();
#pragma unroll
      for (int i = 0; i < side; ++i) total = Fold::join(total, folded[r + i]);
      if constexpr (Fold::sums) {
        const int begin = out + r - p.high.pad_begin;
        const int rows = kind == PoolKind::average_with_pads ? min(side, p.high.in + p.high.pad_end - begin)
                                                             : min(begin + side, p.high.in) - max(begin, 0);
        total = total / static_cast<float>(max(1, rows * columns));
      }
      *to = as_stored<Stored>(total);
      to += columns_line * p.outputs.pixel.y;
    }
#pragma unroll
    for (int r = 0; r < kept; ++r) folded[r] = folded[r + fresh];
  }
}

template <typename Fold>
void pool_squares(const Context& context, int side, SquareProblem p, PoolKind kind, const typename Fold::Stored* x,
                  typename Fold::Stored* y) {
  // Lines per thread: as many as still fill all multiprocessors of an H200 with threads.
  constexpr std::int64_t least_threads = 132 * 1024, most_lines = 8;
  const auto out_lines = static_cast<std::int64_t>(p.outputs.lines.value);
  const std::int64_t lines = std::min({p.outputs.count / least_threads, most_lines, out_lines});
  if (p.high.stride != 1 || lines < 2)
    return launch(context, side == 2 ? pool_square<Fold, 2> : pool_square<Fold, 3>,
                  dim3(blocks_for(p.outputs.count, threads)), dim3(threads), 0, x, y, p, kind, AsItIs());
  const std::int64_t strips = (out_lines + lines - 1) / lines;
  p.outputs.count = p.outputs.count / out_lines * strips;
  p.outputs.lines = Radix(strips);
  launch(context, side == 2 ? pool_strip<Fold, 2> : pool_strip<Fold, 3>, dim3(blocks_for(p.outputs.count, threads)),
         dim3(threads), 0, x, y, p, kind, static_cast<int>(lines), static_cast<int>(out_lines));
}

}  // namespace
}  // namespace lenslet::cuda
