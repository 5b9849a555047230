#pragma once
// A transposed convolution along one axis as convolutions of stride 1: positions o = position * stride + phase of the
// whole result with one phase see the taps r with r * dilation = phase (modulo stride), always the same ones.

#include <cstdint>
#include <vector>

#include "ops/conv/conv_transpose.h"

namespace lenslet {

/// Phases that see their input through the same window, so that one convolution makes them all: as many output channels
/// for each. Its output j is position `first` + j.
struct PhaseGroup {
  struct Phase {
    std::int64_t phase = 0;
    std::int64_t tap = 0;  ///< the first that it sees, of the input at its position - offset; then each tap_step
  };
  /// Neighbouring phases whose positions in y are the same.
  struct Run {
    std::int64_t phase = 0, phases = 0;  ///< index of the first in `phases`, and how many
    std::int64_t from = 0, count = 0;    ///< outputs of the convolution: the first, and how many
    std::int64_t to = 0;                 ///< where the first goes in y; the next phase one behind, the next output
                                         ///< `stride` behind
  };
  std::vector<Phase> phases = {};  ///< ascending
  std::int64_t taps = 0;           ///< of each; 0: nothing reaches them
  std::int64_t tap_step = 1, dilation = 1;
  std::int64_t pad_begin = 0, pad_end = 0, out = 0;  ///< of the convolution
  std::vector<Run> runs = {};
};

/// All phases of the axis; those that lie outside of y may have no run.
std::vector<PhaseGroup> phase_groups(const TransposedAxis& axis);

}  // namespace lenslet
