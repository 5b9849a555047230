#pragma once
// Work of a sparse convolution in a run. A plan knows only bounds; a rulebook has the actual sites and pairs.

#include <cstddef>
#include <optional>

#include "lenslet/runner.h"

namespace lenslet::tool {

struct SparseWork {
  double flops = 0;       ///< of the actual pairs
  std::size_t bytes = 0;  ///< rows of x, y (and residual) at actual sites, pairs, filters: each counted once
};

/// Work of a SparseConv's event; nullopt for others, or if its rulebook is inconsistent.
std::optional<SparseWork> sparse_work(const LayerEvent& event);

}  // namespace lenslet::tool
