#pragma once
// Splits a rulebook's lists, sorted by output, into blocks of outputs.

#include "base/cuda/context.h"
#include "ops/sparse/cuda/device_rulebook.cuh"
#include "ops/sparse/cuda/gathered_plan.h"

namespace lenslet::cuda {

/// begins[tap][b] = index of the tap's first pair whose output is in block b or later, b = 0 ... number of blocks
/// filled in this run; entries behind are not written. Layout [volume, blocks + 1], followed by `counters` numbers that
/// are zeroed. Reports invalid counts, offsets and order; of unsorted lists `begins` is arbitrary.
void find_block_pairs(const Context& context, const DeviceRulebook& rulebook, const GatheredPlan& plan, int blocks,
                      int counters, int* begins);

}  // namespace lenslet::cuda
