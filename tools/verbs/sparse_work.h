#pragma once
// Work of a sparse convolution in a run: a plan knows only bounds, a rulebook the actual sites and pairs.

#include <cstddef>
#include <optional>

#include "lenslet/runner.h"

namespace lenslet::tool {

struct SparseWork {
  double flops = 0;       ///< of the pairs that there are
  std::size_t bytes = 0;  ///< rows of x and y (and of a residual) that are sites, pairs, filters: each once
};

/// Work of a SparseConv's event; nullopt for others, or if its rulebook is inconsistent.
std::optional<SparseWork> sparse_work(const LayerEvent& event);

}  // namespace lenslet::tool
