#pragma once
// Maps indices to elements, for Gather, GatherElements and GatherND, ScatterElements and ScatterND.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/dtypes.h"
#include "base/thread_pool.h"
#include "lenslet/tensor.h"
#include "ops/core/strided_copy.h"

namespace lenslet {

class Problem;

using IndexTypes = Types<std::int64_t, std::int32_t>;

/// Loops over tuples of indices, each of which names `inner` contiguous elements of `data`.
struct IndexWalk {
  /// An index's axis of data and its stride in elements.
  struct Axis {
    int axis = 0;
    std::int64_t dim = 1, step = 0;
  };

  Shape data;
  StridedLoops loops = {};  ///< `from`: where in data, before any index is added; `to`: the number of the tuple
  std::int64_t inner = 1;   ///< elements
  int depth = 1;            ///< indices per tuple, contiguous
  std::array<Axis, Shape::max_rank> axes{};  ///< the first `depth` count

  /// Converts index tuples in [-dim, dim) to offsets.
  template <typename Index>
  std::int64_t place(const Index* tuple) const {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(depth); ++i) {
      const auto index = static_cast<std::int64_t>(tuple[i]);
      at += (index < 0 ? index + axes[i].dim : index) * axes[i].step;
    }
    return at;
  }
};

/// data [outer, dim, inner], indices of any shape: slices of `axis` (Gather).
IndexWalk slices_walk(const Shape& data, int axis, const Shape& indices);
/// One index per element, which replaces its coordinate along `axis` (GatherElements, ScatterElements). With `chain`
/// the loop along `axis` is returned there, separately.
IndexWalk elements_walk(const Shape& data, int axis, const Shape& indices, StridedLoops::Loop* chain = nullptr);
/// indices [batch dims..., any..., depth]: tuples that name slices by the axes behind the batch dims (GatherND,
/// ScatterND).
IndexWalk tuples_walk(const Shape& data, int batch_dims, const Shape& indices);

/// Error(invalid_model) unless `indices` has data's rank and no axis except `axis` is longer.
void require_index_per_element(const Shape& data, const Shape& indices, int axis);
/// Indices per tuple, the last dimension of `indices`. Error(invalid_model) unless they name between 1 and all axes of
/// data behind its first `batch_dims`.
std::size_t require_tuples(const Shape& data, const Shape& indices, std::int64_t batch_dims);

/// "index 3 is outside axis 0 of [3,5]" for the first wrong index, or nothing.
std::optional<std::string> wrong_index(const IndexWalk& walk, const Tensor& indices);
/// Error(invalid_argument) with that message, if any.
void check_indices(const IndexWalk& walk, const Tensor& indices, ThreadPool& pool);
/// BoundKernel::fault of kernels whose indices the run computes.
std::string index_fault(const IndexWalk& walk);
/// CUDA's refusal when input 1 of `walk` is known and out of range.
std::optional<std::string> refuse_indices(const Problem& problem, const IndexWalk& walk);

/// Calls use(row, n, tuple, offset, loop) for lines of rows [begin, end): n rows along the innermost loop, with the
/// first row, its tuple's number and its offset in data without indices. Not for empty ranges.
template <typename Use>
void for_each_line(const IndexWalk& walk, std::int64_t begin, std::int64_t end, const Use& use) {
  if (begin == end) return;  // empty loops
  StridedLoops outer = walk.loops;
  const StridedLoops::Loop run = outer.rank() > 0 ? outer.take(outer.rank() - 1) : StridedLoops::Loop{};
  LoopCursor at(outer, begin / run.dim);
  for (std::int64_t row = begin, first = begin % run.dim; row < end; first = 0, at.next()) {
    const std::int64_t n = std::min(end - row, run.dim - first);
    use(row, n, at.to + first * run.to, at.from + first * run.from, run);
    row += n;
  }
}

/// Calls use(row, tuple, offset) for rows [begin, end) of walk.loops, with the tuple's number and the offset in data
/// that it names. False if an index was out of range: it was taken as 0, or not used at all if the axis is empty.
template <typename Index, typename Use>
bool for_each_place(const IndexWalk& walk, const Index* indices, std::int64_t begin, std::int64_t end, const Use& use) {
  if (begin == end) return true;  // empty loops
  const auto depth = static_cast<std::size_t>(walk.depth);
  for (std::size_t i = 0; i < depth; ++i)
    if (walk.axes[i].dim == 0) return false;
  bool inside = true;
  const auto place = [&inside](const IndexWalk::Axis& axis, Index given) {
    const auto wide = static_cast<std::int64_t>(given), index = wide + (wide < 0 ? axis.dim : 0);
    const bool is_inside = static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(axis.dim);
    inside &= is_inside;
    return (is_inside ? index : 0) * axis.step;
  };
  for_each_line(
      walk, begin, end, [&](std::int64_t row, std::int64_t n, std::int64_t tuple, std::int64_t from, const auto& loop) {
        const std::int64_t stop = row + n;
        if (depth == 1)
          for (const IndexWalk::Axis axis = walk.axes[0]; row < stop; ++row, from += loop.from, tuple += loop.to)
            use(row, tuple, from + place(axis, indices[tuple]));
        for (; row < stop; ++row, from += loop.from, tuple += loop.to) {
          std::int64_t offset = from;
          for (std::size_t i = 0; i < depth; ++i)
            offset += place(walk.axes[i], indices[tuple * walk.depth + static_cast<std::int64_t>(i)]);
          use(row, tuple, offset);
        }
      });
  return inside;
}

}  // namespace lenslet
