#pragma once
// What a reduction accumulates, and the loops that do it for any strides.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/core/grain.h"
#include "ops/core/strided_copy.h"

namespace lenslet::reduce {

/// Type to accumulate in: double for floating point; integers modulo 2^64, as ONNX's int64 sums wrap.
template <typename T>
using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;

// Accumulators: add() takes one element, merge() another accumulator, result() the number of elements.

template <typename T>
struct SumOf {
  Sum<T> sum{0};
  void add(T x) { sum += static_cast<Sum<T>>(x); }
  void merge(const SumOf& other) { sum += other.sum; }
  T result(std::int64_t) const { return static_cast<T>(sum); }
};

template <typename T>
struct MeanOf : SumOf<T> {
  T result(std::int64_t count) const {
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(this->sum / static_cast<double>(count));
    else
      return count == 0 ? T{0} : static_cast<T>(static_cast<std::int64_t>(this->sum) / count);
  }
};

template <typename T>
struct ProdOf {
  Sum<T> product{1};
  void add(T x) { product *= static_cast<Sum<T>>(x); }
  void merge(const ProdOf& other) { product *= other.product; }
  T result(std::int64_t) const { return static_cast<T>(product); }
};

template <typename T>
struct SumSquareOf : SumOf<T> {
  void add(T x) { this->sum += static_cast<Sum<T>>(x) * static_cast<Sum<T>>(x); }
};

template <typename T>
struct L1Of : SumOf<T> {
  void add(T x) { this->sum += x < T{0} ? Sum<T>{0} - static_cast<Sum<T>>(x) : static_cast<Sum<T>>(x); }
};

template <typename T>
struct L2Of : SumSquareOf<T> {
  T result(std::int64_t) const { return static_cast<T>(std::sqrt(this->sum)); }
};

template <typename T>
struct LogSumOf : SumOf<T> {
  T result(std::int64_t) const { return static_cast<T>(std::log(this->sum)); }
};

/// NaN wins, as in NumPy. Of nothing: the least value there is.
template <typename T>
struct MaxOf {
  T best =
      std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  void add(T x) {
    if (x > best || x != x) best = x;
  }
  void merge(const MaxOf& other) { add(other.best); }
  T result(std::int64_t) const { return best; }
};

template <typename T>
struct MinOf {
  T best = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  void add(T x) {
    if (x < best || x != x) best = x;
  }
  void merge(const MinOf& other) { add(other.best); }
  T result(std::int64_t) const { return best; }
};

/// log(sum(exp(x))) without overflow: the sum is kept relative to the largest element so far.
template <typename T>
struct LogSumExpOf {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  void add(T x) { merge({static_cast<double>(x), 1}); }
  void merge(const LogSumExpOf& other) {
    if (other.sum == 0) return;
    const double most = std::max(largest, other.largest);
    // Elements of -infinity (or two of +infinity) would give inf - inf.
    const auto scaled = [most](double at, double amount) { return at == most ? amount : amount * std::exp(at - most); };
    sum = scaled(largest, sum) + scaled(other.largest, other.sum);
    largest = most;
  }
  T result(std::int64_t) const {
    return static_cast<T>(sum == 0 ? -std::numeric_limits<double>::infinity() : std::log(sum) + largest);
  }
};

/// Loops over what stays (from input to output) and over what is reduced (input only).
struct Loops {
  StridedLoops kept, reduced;
};

/// Loops that reduce each plane of x [n,c,area] (nhwc: stored [n,area,c]) to one value of y [n,c].
inline Loops plane_loops(std::int64_t n, std::int64_t c, std::int64_t area, bool nhwc) {
  Loops loops;
  loops.kept.add(n, c * area, c);
  loops.kept.add(c, nhwc ? 1 : area, 1);
  loops.reduced.add(area, nhwc ? c : 1, 0);
  return loops;
}

// Neighbouring outputs accumulated together; 32 doubles stay in vector registers or close.
inline constexpr std::int64_t lanes = 32;

/// Index of the loop whose input elements are neighbours, or -1.
inline int contiguous_loop(const StridedLoops& loops) {
  for (int i = 0; i < loops.rank(); ++i)
    if (loops[i].from == 1) return i;
  return -1;
}

/// Neighbours in memory belong to different outputs: a block of outputs is accumulated at once.
template <typename Accumulator, typename T>
void across_outputs(Loops loops, int contiguous, const T* from, T* to, ThreadPool& pool) {
  const StridedLoops::Loop lane = loops.kept.take(contiguous);
  const std::int64_t count = loops.reduced.count();
  const std::int64_t blocks = (lane.dim + lanes - 1) / lanes;
  const std::int64_t unit_elems = std::max<std::int64_t>(1, count * std::min(lanes, lane.dim));
  pool.parallel_for(loops.kept.count() * blocks, std::max<std::int64_t>(1, elementwise_grain / unit_elems),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t unit = begin; unit < end; ++unit) {
                        const LoopCursor at(loops.kept, unit / blocks);
                        const std::int64_t first = unit % blocks * lanes;
                        const std::int64_t width = std::min(lanes, lane.dim - first);
                        std::array<Accumulator, lanes> sums{};
                        LoopCursor step(loops.reduced);
                        for (std::int64_t i = 0; i < count; ++i, step.next()) {
                          const T* row = from + at.from + first + step.from;
                          for (std::int64_t j = 0; j < width; ++j) sums[static_cast<std::size_t>(j)].add(row[j]);
                        }
                        for (std::int64_t j = 0; j < width; ++j)
                          to[at.to + (first + j) * lane.to] = sums[static_cast<std::size_t>(j)].result(count);
                      }
                    });
}

/// One output at a time; several accumulators in turn along the innermost reduced loop break the chain of additions.
template <typename Accumulator, typename T>
void along_input(const Loops& loops, const T* from, T* to, ThreadPool& pool) {
  constexpr std::size_t chains = 8;
  const std::int64_t count = loops.reduced.count();
  StridedLoops outer = loops.reduced;
  const StridedLoops::Loop row = outer.rank() > 0 ? outer.take(outer.rank() - 1) : StridedLoops::Loop{1, 0, 0};
  const std::int64_t rows = count == 0 ? 0 : outer.count();
  pool.parallel_for(loops.kept.count(), std::max<std::int64_t>(1, elementwise_grain / std::max<std::int64_t>(1, count)),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      LoopCursor at(loops.kept, begin);
                      for (std::int64_t unit = begin; unit < end; ++unit, at.next()) {
                        std::array<Accumulator, chains> sums{};
                        LoopCursor step(outer);
                        for (std::int64_t i = 0; i < rows; ++i, step.next()) {
                          const T* x = from + at.from + step.from;
                          std::int64_t j = 0;
                          for (; j + static_cast<std::int64_t>(chains) <= row.dim;
                               j += static_cast<std::int64_t>(chains))
                            for (std::size_t chain = 0; chain < chains; ++chain)
                              sums[chain].add(x[(j + static_cast<std::int64_t>(chain)) * row.from]);
                          for (std::size_t chain = 0; j < row.dim; ++j, ++chain) sums[chain].add(x[j * row.from]);
                        }
                        for (std::size_t chain = 1; chain < chains; ++chain) sums[0].merge(sums[chain]);
                        to[at.to] = sums[0].result(count);
                      }
                    });
}

template <typename Accumulator, typename T>
void run(const Loops& loops, const T* from, T* to, ThreadPool& pool) {
  if (loops.kept.count() == 0) return;
  const int contiguous = contiguous_loop(loops.kept);
  if (contiguous >= 0)
    across_outputs<Accumulator>(loops, contiguous, from, to, pool);
  else
    along_input<Accumulator>(loops, from, to, pool);
}

}  // namespace lenslet::reduce
