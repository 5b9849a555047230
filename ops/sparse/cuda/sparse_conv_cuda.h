#pragma once
// What CUDA's kernels of SparseConv refuse, and say of a rulebook that lies. Plain C++.

#include <optional>
#include <string>

#include "ops/sparse/sparse_conv.h"

namespace lenslet::cuda {

/// Why 31 bits do not number what the kernels number, or nothing.
std::optional<std::string> refuse_sizes(const SparseConvProblem& p, const Problem& node);
/// BoundKernel::fault.
std::string rulebook_fault(const SparseConvProblem& p);

/// The kernels, in the files of their names.
const Kernel &sparse_conv_neighbour_tiles(), &sparse_conv_neighbour_mma(), &sparse_conv_gathered_tiles(),
    &sparse_conv_gather_scatter();

}  // namespace lenslet::cuda
