#pragma once
// Shared by CUDA's SparseConv kernels: refusals, messages about invalid rulebooks, candidates. Plain C++.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ops/core/kernel.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet::cuda {

/// Why the kernels' 31-bit numbers do not suffice, or nothing.
std::optional<std::string> refuse_sizes(const SparseConvProblem& p, const Problem& node);
/// BoundKernel::fault.
std::string rulebook_fault(const SparseConvProblem& p);

/// The candidate of a kernel that prepares known filters, without workspace, estimate and tolerance.
Candidate prepared_candidate(const Problem& node, const SparseConvProblem& p, std::string config);
/// The key of filters in layout `form`, with their scales.
std::string prepared_key(const SparseConvOp& op, std::string form);

/// Threads of a block of gather_scatter, and its launch; `length`: numbers of the rulebook.
inline constexpr int gather_scatter_threads = 128;
std::unique_ptr<const BoundKernel> bind_gather_scatter(SparseConvProblem problem, std::int64_t length,
                                                       int multiprocessors);

/// The kernels, in the files of their names.
const Kernel &sparse_conv_neighbour_tiles(), &sparse_conv_neighbour_mma(), &sparse_conv_gathered_tiles(),
    &sparse_conv_gather_scatter();

}  // namespace lenslet::cuda
