#pragma once
// Where the pairs of each block of outputs begin: what a rulebook's lists, ascending by output, are cut into.

#include "base/cuda/context.h"
#include "ops/sparse/cuda/device_rulebook.cuh"
#include "ops/sparse/cuda/gathered_plan.h"

namespace lenslet::cuda {

/// begins[tap][b] = number of the tap's pairs whose output lies before the first row of block b, for b = 0 ... blocks
/// that the outputs of the run fill; what stands behind is not written. [volume, blocks + 1], and behind them
/// `counters` numbers, which become 0. Reports what counts, places and order of the lists say that cannot be; of lists
/// out of order begins may be anything.
void find_block_pairs(const Context& context, const DeviceRulebook& rulebook, const GatheredPlan& plan, int blocks,
                      int counters, int* begins);

}  // namespace lenslet::cuda
