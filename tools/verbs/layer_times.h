#pragma once
// Times of a network's steps beside the machine's limits.

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/runner.h"
#include "tools/measuring/peak.h"
#include "tools/measuring/samples.h"

namespace lenslet::tool {

struct LayerTime {
  StepInfo step;               ///< the plan's; of a sparse convolution work and bytes of the sites that came
  Quantiles us;                ///< of the step alone
  std::optional<Floor> floor;  ///< absent without measured limits
  std::string above;           ///< why the floor's share is above 100%; empty when it is not
  std::string band;            ///< of a step that a run takes in a band, here timed by itself: how; else empty

  double percent_of_floor() const { return floor ? floor->percent(us.median) : 0; }
  double gflops() const { return us.median > 0 ? step.flops / us.median / 1e3 : 0; }
  double lost_us() const { return floor && us.median > floor->us ? us.median - floor->us : 0; }
};

/// The limits of the plan's device, measured now (see peak.h). Nothing, with a note on stderr, where CUDA has no cuBLAS
/// to measure with.
std::optional<Peak> peak_of(const PlanInfo& plan);

/// Steps that run, in their order: at least 5 runs, until `seconds` are over.
std::vector<LayerTime> time_layers(Runner& runner, std::span<const Tensor> inputs, double seconds,
                                   const std::optional<Peak>& peak);

/// The offered candidate of a step that comes next to the chosen one by its estimate; nullptr without any.
const StepCandidate* runner_up(const StepInfo& step);

/// {"fma_gflops": ..., "copy_gb_per_s": ..., "how": ...}
nlohmann::ordered_json to_json(const Peak& peak);
/// One flat object.
nlohmann::ordered_json to_json(const LayerTime& layer);

}  // namespace lenslet::tool
