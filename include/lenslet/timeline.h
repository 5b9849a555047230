#pragma once
// When each thread or CUDA stream was busy during one run: Runner::timeline.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lenslet {

struct TimelineSpan {
  enum class Kind : std::uint8_t {
    step,   ///< the calling thread alone, or a CUDA stream
    piece,  ///< pieces of a loop that threads share
    band    ///< rows of a step that runs in a band (PlanInfo::bands)
  };
  int lane = 0;  ///< into Timeline::lanes
  int step = 0;  ///< into PlanInfo::steps; -1: outside the steps, mostly copies of inputs
  Kind kind = Kind::step;
  double begin_us = 0, end_us = 0;  ///< since the run began
};

constexpr std::string_view to_string(TimelineSpan::Kind kind) {
  using enum TimelineSpan::Kind;
  return kind == step ? "step" : kind == piece ? "piece" : "band";
}

struct Timeline {
  /// On the CPU "thread 1", which calls, and the others (with PlanOptions::executor, its tasks); on CUDA "stream" and,
  /// for weights that are fetched into L2 early, "prefetch".
  std::vector<std::string> lanes;
  /// By lane and time. Those of a lane do not overlap; where it has none, it waits.
  std::vector<TimelineSpan> spans;
  double run_us = 0;          ///< the run with time stamps
  double undisturbed_us = 0;  ///< median of runs without
};

}  // namespace lenslet
