#pragma once
// Memory placement: which values share bytes, each one's lifetime, and its offset in the arena.

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/graph/memory_plan.h"

namespace lenslet {

struct Placement {
  std::vector<bool> runs;                      ///< by node: false where the output renames the input's bytes
  std::vector<ValueId> root;                   ///< by value: the value that owns its block
  std::vector<std::size_t> offsets;            ///< by value; npos for values backed by a constant
  std::vector<std::size_t> workspace_offsets;  ///< by node
  std::vector<int> first, last;                ///< by root value: steps it is alive; -1 when not in the arena
  std::size_t arena_bytes = 0;
  std::size_t lower_bound_bytes = 0;
  std::size_t activation_bytes = 0;  ///< the plan without workspaces
  std::size_t activation_sum_bytes = 0;
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
};

struct PlacementOptions {
  bool keep_all = false;     ///< no block is reused or overwritten; renamings still share bytes
  bool keep_inputs = false;  ///< the same for the graph's inputs only, so that a run can be repeated on them
  std::size_t alignment = arena_alignment;
};

/// cudaMalloc's own: whole sectors and cache lines, and the widest loads anywhere.
inline constexpr std::size_t cuda_arena_alignment = 256;

/// `workspace_bytes` by node.
Placement place_values(const Graph& graph, std::span<const std::size_t> workspace_bytes,
                       const PlacementOptions& options);

}  // namespace lenslet
