#pragma once
// Steps that together only move rows of one value: a roll and a partition into windows, patch merging. The rows are
// found by moving the integers 0, 1, 2 ... of one image once.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// What the steps make of x [images, x_rows, row]: y [images, table, row], the rows that the table names.
struct RowMove {
  std::vector<NodeId> steps;  ///< the last one first
  ValueId x = no_id;
  std::int64_t images = 1, x_rows = 0, row = 0;  ///< row: elements, as many as no step cuts
  std::vector<std::int32_t> table = {};
};

class RowMoves {
 public:
  explicit RowMoves(const GraphEdit& edit) : graph_(edit.graph()), edit_(edit) {}

  /// A step: a view, or a Slice, Concat, Transpose, Split or Gather by constants that leaves rows whole.
  bool is_step(const Node& node) const;
  /// The largest group of steps up to `end` that reads one value and moves rows of it, and whose other results nothing
  /// else reads. It has `least_copies` steps besides views, and rows of `least_bytes`. Nothing where there is none, or
  /// once the limits are met.
  std::optional<RowMove> ending_at(NodeId end, int least_copies, std::int64_t least_bytes);
  /// The limits are met: no further group is found.
  bool done() const { return elems_left_ <= 0; }

 private:
  bool keeps_innermost(const Node& transpose) const;
  bool read_by(const std::map<ValueId, int>& outside, NodeId id) const;
  std::int64_t images_of(std::span<const NodeId> group) const;
  std::optional<RowMove> rows_of(std::span<const NodeId> group, ValueId x, ValueId y);

  const Graph& graph_;
  const GraphEdit& edit_;
  ThreadPool pool_{1};
  std::int64_t elems_left_ = std::int64_t{1} << 30;  ///< that all evaluations may still move
};

}  // namespace lenslet
