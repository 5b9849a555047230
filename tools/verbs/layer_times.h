#pragma once
// Times of a network's steps beside the machine's limits.

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/runner.h"
#include "tools/measuring/peak.h"
#include "tools/measuring/samples.h"

namespace lenslet::tool {

struct LayerTime {
  StepInfo step;  ///< the plan's; for a sparse convolution with the work and bytes of the actual sites
  Quantiles us;   ///< of this step alone
  std::optional<Floor> floor = {};  ///< absent without measured limits
  std::string above = {};           ///< why the share of the floor is above 100%; else empty
  std::string band = {};       ///< how runs compute the step within a band, although it is timed alone here; else empty
  int number = 0;              ///< of the step in PlanInfo::steps
  double denormals = 0;        ///< CPU: share of the float32 values in and out that are denormal numbers
  double weight_bytes = 0;     ///< CPU: of the step's bytes, those that are neither computed nor the network's input
  double threads_at_work = 0;  ///< CPU, in a run: their mean number while one computed the step; 0: not known
  double in_band_us = 0;       ///< CPU, in a run: of a step in a band, its time, shared among all threads; 0: not known
  double in_caches_us = 0;     ///< CPU: of a convolution that is repeated at once; 0: not measured
  std::string time_because = {};  ///< slowness.h; else empty
  std::string advice = {};        ///< advice.h; else empty

  double percent_of_floor() const { return floor ? floor->percent(us.median) : 0; }
  double gflops() const { return us.median > 0 ? step.flops / us.median / 1e3 : 0; }
  double lost_us() const { return floor && us.median > floor->us ? us.median - floor->us : 0; }
  /// The floor, or the time where that is less: lost_us() and this are the time.
  double floor_within_us() const { return floor ? us.median - lost_us() : 0; }
};

/// LayerTime::above of a layer whose time only a limit that was measured too low explains.
inline constexpr std::string_view limit_was_low = "the limit was measured at a busier moment";

/// The limits of the plan's device, measured now (peak.h). Nothing, with a note on stderr, if CUDA lacks cuBLAS.
std::optional<Peak> peak_of(const PlanInfo& plan);

/// Steps in order of execution: at least 5 runs, until `seconds` have passed.
std::vector<LayerTime> time_layers(Runner& runner, std::span<const Tensor> inputs, double seconds);
/// Their floors, and why they are above the times.
void set_limits(std::span<LayerTime> layers, const Peak& peak);

/// The offered candidate with the best estimate after the chosen one; nullptr if there is none.
const StepCandidate* runner_up(const StepInfo& step);
/// The chosen candidate; nullptr if there was no choice.
const StepCandidate* chosen(const StepInfo& step);
/// The estimate and that of the conversions beside it: what the choice compares.
inline double total_us(const StepCandidate& candidate) { return candidate.estimated_us + candidate.neighbours_us; }

/// {"fma_gflops": ..., "copy_gb_per_s": ..., "how": ...}
nlohmann::ordered_json to_json(const Peak& peak);
/// One flat object.
nlohmann::ordered_json to_json(const LayerTime& layer);

}  // namespace lenslet::tool
