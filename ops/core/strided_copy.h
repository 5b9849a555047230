#pragma once
// The kernel of all operators that only move elements: a loop nest with separate strides on each side.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/format.h"
#include "base/thread_pool.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// Steps in elements along each axis of a shape, as element_strides() gives them.
using AxisSteps = std::array<std::int64_t, Shape::max_rank>;

/// for all indices: to[sum index*to_stride] = from[sum index*from_stride]. Outermost loop first; strides in elements,
/// 0 or negative allowed on the `from` side.
class StridedLoops {
 public:
  static constexpr int max_rank = 2 * Shape::max_rank;

  StridedLoops() = default;
  /// Loops over all indices of `shape`, in the storage order of `format` at its rank.
  StridedLoops(const Shape& shape, const Format& format, const AxisSteps& from, const AxisSteps& to);

  /// Adds a loop inside the others. Loops of length 1 are dropped; a loop that continues the previous one on both sides
  /// is merged with it.
  void add(std::int64_t dim, std::int64_t from_stride, std::int64_t to_stride);

  struct Loop {
    std::int64_t dim = 1, from = 0, to = 0;
  };
  int rank() const { return rank_; }
  const Loop& operator[](int i) const { return loops_[static_cast<std::size_t>(i)]; }
  /// Removes loop i and returns it.
  Loop take(int i);
  std::int64_t count() const;  ///< product of all loops

 private:
  std::array<Loop, max_rank> loops_{};
  int rank_ = 0;
};

/// Walks all indices in order, innermost loop fastest, and tracks both element offsets.
class LoopCursor {
 public:
  /// Starts at index `position` of loops.count(). `loops` must outlive the cursor.
  explicit LoopCursor(const StridedLoops& loops, std::int64_t position = 0);
  /// Wraps around after the last index.
  void next() {
    for (int i = loops_.rank() - 1; i >= 0; --i) {
      auto& index = index_[static_cast<std::size_t>(i)];
      if (++index < loops_[i].dim) {
        from += loops_[i].from;
        to += loops_[i].to;
        return;
      }
      from -= (index - 1) * loops_[i].from;
      to -= (index - 1) * loops_[i].to;
      index = 0;
    }
  }
  std::int64_t from = 0, to = 0;

 private:
  const StridedLoops& loops_;
  std::array<std::int64_t, StridedLoops::max_rank> index_{};
};

/// `element_bytes` 1, 2, 4 or 8. `from` and `to` point at the elements of index 0 and do not overlap.
void strided_copy(std::size_t element_bytes, const StridedLoops& loops, const void* from, void* to, ThreadPool& pool);

/// Pointer to element `offset` of a tensor of any type.
inline const void* element_at(const Tensor& tensor, std::int64_t offset) {
  return static_cast<const std::byte*>(tensor.data()) + offset * static_cast<std::int64_t>(dtype_bytes(tensor.dtype()));
}
inline void* element_at(Tensor& tensor, std::int64_t offset) {
  return static_cast<std::byte*>(tensor.data()) + offset * static_cast<std::int64_t>(dtype_bytes(tensor.dtype()));
}

}  // namespace lenslet
