#include "ops/core/walk.h"

namespace lenslet::cuda {

Walk make_walk(const BroadcastLoops& loops, int operand, bool packs_aligned, int pack) {
  const auto& strides = loops.strides[static_cast<std::size_t>(operand)];
  Walk walk;
  // Merges loops that this operand steps through evenly, whatever the other operands need.
  std::array<std::int64_t, Shape::max_rank> dims{};
  int rank = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(loops.rank); ++d) {
    if (loops.dims[d] == 1) continue;
    const int last = rank - 1;
    if (rank > 0 && walk.strides[last] == strides[d] * loops.dims[d]) {
      dims[static_cast<std::size_t>(last)] *= loops.dims[d];
      walk.strides[last] = strides[d];
    } else {
      dims[static_cast<std::size_t>(rank)] = loops.dims[d];
      walk.strides[rank++] = strides[d];
    }
  }
  if (rank == 0) return walk;  // one element: strides[0] is 0
  walk.rank = rank;
  for (int d = 1; d < rank; ++d)
    walk.dims[d] = FastDivider(static_cast<std::uint32_t>(dims[static_cast<std::size_t>(d)]));

  const std::int64_t inner = dims[static_cast<std::size_t>(rank - 1)], step = walk.strides[rank - 1];
  bool rows_aligned = packs_aligned && inner % pack == 0;
  for (int d = 0; d + 1 < rank; ++d) rows_aligned = rows_aligned && walk.strides[d] % pack == 0;
  if (rank == 1 && step == 0)
    walk.form = Walk::Form::single;
  else if (rank == 1 && step == 1 && packs_aligned)
    walk.form = Walk::Form::whole;
  else if (step == 1 && rows_aligned)
    walk.form = Walk::Form::packs;
  else if (step == 0 && inner % pack == 0)
    walk.form = Walk::Form::splats;
  else
    walk.form = Walk::Form::each;
  return walk;
}

}  // namespace lenslet::cuda
