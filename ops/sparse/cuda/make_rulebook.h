#pragma once
// The ways in which a rulebook is made (rulebook_cuda.h), each in the file of its name.

#include "ops/sparse/cuda/rulebook_cuda.h"
#include "ops/sparse/cuda/workspace.h"

namespace lenslet::cuda {

std::size_t submanifold_workspace_bytes(const RulebookPlan& plan);
void make_submanifold(const Context& context, const RulebookPlan& plan, const std::int32_t* indices,
                      std::int32_t* rulebook, std::byte* workspace);

std::size_t marked_workspace_bytes(const RulebookPlan& plan);
void make_marked(const Context& context, const RulebookPlan& plan, const std::int32_t* indices, std::int32_t* rulebook,
                 std::int32_t* out_indices, std::byte* workspace);

std::size_t sorted_workspace_bytes(const RulebookPlan& plan);
void make_sorted(const Context& context, const RulebookPlan& plan, const std::int32_t* indices, std::int32_t* rulebook,
                 std::int32_t* out_indices, std::byte* workspace);

}  // namespace lenslet::cuda
