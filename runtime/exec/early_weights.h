#pragma once
// Weights that come to L2 before their step begins, while an earlier one runs: decided with the plan. Plain C++.
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

/// What a step reads that no step writes: what it prepared, or else the largest constant.
struct StepWeights {
  std::size_t bytes = 0;  ///< 0: it has none, or does not run
  bool waits = false;     ///< its kernel does for them (Candidate::waits_for_weights)
  bool product = false;   ///< of matrices: all of them stream through it once
};

/// The first bytes of a step's weights come to L2 from the end of step `behind` on, while step `beside` runs.
struct EarlyWeights {
  std::size_t step = 0, behind = 0, beside = 0;
  std::size_t bytes = 0;
};

/// In the order of the steps. `weight_bytes`: of the network, each once. None where they stay in L2, or nearly.
std::vector<EarlyWeights> early_weights(std::span<const StepWeights> steps, std::size_t weight_bytes,
                                        const DeviceProfile& device);

/// Says so in the reasons of the steps.
void describe_early_weights(std::span<const EarlyWeights> early_weights, std::span<StepInfo> steps);

}  // namespace lenslet
