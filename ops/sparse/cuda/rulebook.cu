#include "ops/sparse/cuda/rulebook_cuda.h"

#include "ops/sparse/cuda/make_rulebook.h"

namespace lenslet::cuda {

namespace {

bool marks_cells(const RulebookPlan& plan) { return plan.geometry.output(plan.grid).cells() <= most_marked_cells; }

}  // namespace

std::size_t rulebook_workspace_bytes(const RulebookPlan& plan) {
  if (plan.geometry.kind == SparseGeometry::Kind::submanifold) return submanifold_workspace_bytes(plan);
  return marks_cells(plan) ? marked_workspace_bytes(plan) : sorted_workspace_bytes(plan);
}

void make_rulebook(const Context& context, const RulebookPlan& plan, const std::int32_t* indices,
                   const RulebookMemory& to) {
  const auto make = plan.geometry.kind == SparseGeometry::Kind::submanifold ? make_submanifold
                    : marks_cells(plan)                                     ? make_marked
                                                                            : make_sorted;
  make(context, plan, indices, to);
}

}  // namespace lenslet::cuda
