#pragma once
// What CUDA's kernels of SparseConv have in common: what they refuse, say of a rulebook that lies, and of themselves.
// Plain C++.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ops/core/kernel.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet::cuda {

/// Why 31 bits do not number what the kernels number, or nothing.
std::optional<std::string> refuse_sizes(const SparseConvProblem& p, const Problem& node);
/// BoundKernel::fault.
std::string rulebook_fault(const SparseConvProblem& p);

/// Of a kernel that prepares filters that are known: all but workspace, estimate and tolerance.
Candidate prepared_candidate(const Problem& node, const SparseConvProblem& p, std::string config);
/// How such filters lie, as `form` says, and what they are scaled by.
std::string prepared_key(const SparseConvOp& op, std::string form);

/// Threads of a block of gather_scatter, and its launch on a device of `units` multiprocessors; `length`: numbers of
/// the rulebook.
inline constexpr int gather_scatter_threads = 128;
std::unique_ptr<const BoundKernel> bind_gather_scatter(SparseConvProblem problem, std::int64_t length, int units);

/// The kernels, in the files of their names.
const Kernel &sparse_conv_neighbour_tiles(), &sparse_conv_neighbour_mma(), &sparse_conv_gathered_tiles(),
    &sparse_conv_gather_scatter();

}  // namespace lenslet::cuda
