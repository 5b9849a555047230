#pragma once
// What a sparse convolution had to do in a run: a plan knows bounds only, a rulebook the sites and pairs that came.

#include <cstddef>
#include <optional>

#include "lenslet/runner.h"

namespace lenslet::tool {

struct SparseWork {
  double flops = 0;       ///< of the pairs that there are
  std::size_t bytes = 0;  ///< rows of x and y (and of a residual) that are sites, pairs, filters: each once
};

/// Of a SparseConv's event; nothing of others, or where its rulebook says what cannot be.
std::optional<SparseWork> sparse_work(const LayerEvent& event);

}  // namespace lenslet::tool
