#pragma once
// Prefetches of weights into L2 during an earlier step, decided with the plan. Plain C++.
//
// Convolutions leave memory idle, products of few rows wait for nothing else: VGG-16's first fully connected layer
// reads 205 MB in fp16. What is brought early is taken from the step beside, and is worth nothing where weights stay in
// L2 from run to run. VGG-16 at batch 1 on an H100, fp16 and TF32, ms: nothing early 0.2104, 0.2958; that layer's
// 0.2043, 0.2928; on other choices that layer's alone 0.2022, 0.2840, and filters of 4 MB or more 0.2023, 0.2787, of
// any size 0.2020, 0.2798 (docs/tensor-cores.md has what was tried before).

#include <cstddef>
#include <span>
#include <vector>

#include "base/device_profile.h"
#include "lenslet/model.h"

namespace lenslet {

/// A step's weights: its packed blob, or else its largest constant.
struct StepWeights {
  std::size_t bytes = 0;  ///< 0: no weights, or the step does not run
  bool waits = false;     ///< its kernel is bound by loading them (Candidate::waits_for_weights)
  bool product = false;   ///< a matrix product: reads all weights exactly once
};

/// Prefetches the first bytes of a step's weights into L2 after step `behind`, concurrently with step `beside`.
struct EarlyWeights {
  std::size_t step = 0, behind = 0, beside = 0;
  std::size_t bytes = 0;
};

/// The prefetches in step order. `weight_bytes`: all of the network's weights. None if they (nearly) fit in L2.
std::vector<EarlyWeights> early_weights(std::span<const StepWeights> steps, std::size_t weight_bytes,
                                        const DeviceProfile& device);

/// Notes the prefetches in the steps' reasons.
void describe_early_weights(std::span<const EarlyWeights> early_weights, std::span<StepInfo> steps);

}  // namespace lenslet
