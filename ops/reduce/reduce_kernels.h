#pragma once
// CPU loops of reductions with any strides.

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/core/grain.h"
#include "ops/core/strided_copy.h"
#include "ops/reduce/fold.h"

namespace lenslet::reduce {

/// Loops over kept axes (from input to output) and over reduced axes (input only).
struct Loops {
  StridedLoops kept, reduced;
};

/// Pixel strides of x and y in nhwc, in elements: the channels, or more (Format::pixel_pitch).
struct PlanePixels {
  std::int64_t x, y;
};
/// Loops that reduce each plane of x [n,c,area] (nhwc: stored [n,area,c]) to one value of y [n,c].
inline Loops plane_loops(std::int64_t n, std::int64_t c, std::int64_t area, bool nhwc, PlanePixels pixel) {
  Loops loops;
  loops.kept.add(n, pixel.x * area, pixel.y);
  loops.kept.add(c, nhwc ? 1 : area, 1);
  loops.reduced.add(area, nhwc ? pixel.x : 1, 0);
  return loops;
}
inline Loops plane_loops(std::int64_t n, std::int64_t c, std::int64_t area, bool nhwc) {
  return plane_loops(n, c, area, nhwc, {c, c});
}

// Adjacent outputs accumulated together; 32 doubles fit, or nearly fit, the vector registers.
inline constexpr std::int64_t lanes = 32;

/// Index of the loop with contiguous input elements, or -1.
inline int contiguous_loop(const StridedLoops& loops) {
  for (int i = 0; i < loops.rank(); ++i)
    if (loops[i].from == 1) return i;
  return -1;
}

/// The reduced loops, with the innermost one separate.
class ReducedRows {
 public:
  explicit ReducedRows(const StridedLoops& reduced) : count(reduced.count()), outer_(reduced) {
    if (outer_.rank() > 0) row = outer_.take(outer_.rank() - 1);
  }
  /// Calls f(offset) for each row of row.dim elements, in order; never for an empty reduction.
  template <typename F>
  void for_each(const F& f) const {
    if (outer_.rank() == 0 && count > 0) return f(0);
    LoopCursor step(outer_);
    for (std::int64_t i = count == 0 ? 0 : outer_.count(); i > 0; --i, step.next()) f(step.from);
  }
  std::int64_t count = 0;  ///< of all elements
  StridedLoops::Loop row;

 private:
  StridedLoops outer_;
};

/// Removes the kept loop with contiguous input elements; without one, returns a loop of length 1.
inline StridedLoops::Loop take_lane(StridedLoops& kept) {
  const int contiguous = contiguous_loop(kept);
  return contiguous >= 0 ? kept.take(contiguous) : StridedLoops::Loop{1, 1, 1};
}

/// For adjacent elements of different outputs: accumulates a block of `lanes` outputs at once, each in order.
template <typename Fold, std::int64_t lanes = reduce::lanes, typename T = typename Fold::In>
void across_outputs(Loops loops, typename Fold::Rule rule, const T* from, typename Fold::Out* to, ThreadPool& pool) {
  const StridedLoops::Loop lane = take_lane(loops.kept);
  const ReducedRows rows(loops.reduced);
  const std::int64_t blocks = (lane.dim + lanes - 1) / lanes;
  const std::int64_t unit_elems = std::max<std::int64_t>(1, rows.count * std::min(lanes, lane.dim));
  const auto block = [&](const T* x, typename Fold::Out* y, auto width) {
    std::array<Fold, lanes> folds;
    rows.for_each([&](std::int64_t first) {
      for (std::int64_t i = 0; i < rows.row.dim; ++i)
        for (std::int64_t j = 0; j < width; ++j) {
          Fold fold = folds[static_cast<std::size_t>(j)];  // added to where it lies, an extreme is not vectorised
          fold.add(x[first + i * rows.row.from + j], 0, rule);
          folds[static_cast<std::size_t>(j)] = fold;
        }
    });
    for (std::int64_t j = 0; j < width; ++j)
      y[j * lane.to] = folds[static_cast<std::size_t>(j)].result(rows.count, rule);
  };
  pool.parallel_for(loops.kept.count() * blocks, std::max<std::int64_t>(1, elementwise_grain / unit_elems),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t unit = begin; unit < end; ++unit) {
                        const LoopCursor at(loops.kept, unit / blocks);
                        const std::int64_t first = unit % blocks * lanes;
                        const T* x = from + at.from + first;
                        typename Fold::Out* y = to + at.to + first * lane.to;
                        if (lane.dim - first >= lanes)
                          block(x, y, std::integral_constant<std::int64_t, lanes>());
                        else
                          block(x, y, lane.dim - first);
                      }
                    });
}

/// Interleaved folds. A sum's bits depend on their number; extremes' do not, and g++ 12 vectorises only 32 of them.
template <typename Fold>
inline constexpr std::int64_t chains_of = 8;
template <typename T, bool largest>
inline constexpr std::int64_t chains_of<ExtremeFold<T, largest>> = 32;

/// One output at a time; several interleaved folds along the innermost reduced loop break the dependency chain.
template <typename Fold, typename T = typename Fold::In>
void along_input(const Loops& loops, typename Fold::Rule rule, const T* from, typename Fold::Out* to,
                 ThreadPool& pool) {
  constexpr std::int64_t chains = chains_of<Fold>;
  const ReducedRows rows(loops.reduced);
  const auto fold = [&](const T* x, auto stride) {
    if (rows.count == rows.row.dim && rows.count < chains) {
      Fold one;
      for (std::int64_t i = 0; i < rows.count; ++i) one.add(x[i * stride], 0, rule);
      return one.result(rows.count, rule);
    }
    std::array<Fold, chains> folds;
    rows.for_each([&](std::int64_t first) {
      std::int64_t i = 0;
      for (; i + chains <= rows.row.dim; i += chains)
        for (std::int64_t chain = 0; chain < chains; ++chain) {
          Fold fold_here = folds[static_cast<std::size_t>(chain)];  // as above
          fold_here.add(x[first + (i + chain) * stride], 0, rule);
          folds[static_cast<std::size_t>(chain)] = fold_here;
        }
      for (std::int64_t chain = 0; i < rows.row.dim; ++i, ++chain)
        folds[static_cast<std::size_t>(chain)].add(x[first + i * stride], 0, rule);
    });
    for (std::size_t chain = 1; chain < chains; ++chain) folds[0].merge(folds[chain], rule);
    return folds[0].result(rows.count, rule);
  };
  pool.parallel_for(loops.kept.count(),
                    std::max<std::int64_t>(1, elementwise_grain / std::max<std::int64_t>(1, rows.count)),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      LoopCursor at(loops.kept, begin);
                      for (std::int64_t unit = begin; unit < end; ++unit, at.next())
                        to[at.to] = rows.row.from == 1 ? fold(from + at.from, std::integral_constant<std::int64_t, 1>())
                                                       : fold(from + at.from, rows.row.from);
                    });
}

template <typename Fold, typename T = typename Fold::In>
void run(const Loops& loops, typename Fold::Rule rule, const T* from, typename Fold::Out* to, ThreadPool& pool) {
  if (loops.kept.count() == 0) return;
  if (contiguous_loop(loops.kept) >= 0)
    across_outputs<Fold>(loops, rule, from, to, pool);
  else
    along_input<Fold>(loops, rule, from, to, pool);
}

}  // namespace lenslet::reduce
