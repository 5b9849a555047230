#pragma once
// The algorithms that build rulebooks (rulebook_cuda.h), each in the file of its name.

#include "ops/sparse/cuda/rulebook_cuda.h"
#include "ops/sparse/cuda/workspace.h"

namespace lenslet::cuda {

std::size_t submanifold_workspace_bytes(const RulebookPlan&plan), marked_workspace_bytes(const RulebookPlan&plan),
    sorted_workspace_bytes(const RulebookPlan&plan);

using MakeRulebook = void(const Context& context, const RulebookPlan& plan, const std::int32_t* indices,
                          const RulebookMemory& to);
MakeRulebook make_submanifold, make_marked, make_sorted;

}  // namespace lenslet::cuda
