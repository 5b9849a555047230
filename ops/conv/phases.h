#pragma once
// A transposed convolution along one axis as convolutions of stride 1: output positions position * stride + phase with
// the same phase use the same taps, those r with r * dilation = phase (modulo stride).

#include <cstdint>
#include <vector>

#include "ops/conv/conv_transpose.h"

namespace lenslet {

/// Phases with the same input window: one convolution computes them all, with a set of output channels for each. Its
/// output j is position `first` + j.
struct PhaseGroup {
  struct Phase {
    std::int64_t phase = 0;
    std::int64_t tap = 0;  ///< first tap, for the input at its position - offset; the next ones are tap_step apart
  };
  /// Adjacent phases with the same range of positions in y.
  struct Run {
    std::int64_t phase = 0, phases = 0;  ///< index in `phases` of the first, and their number
    std::int64_t from = 0, count = 0;    ///< the convolution's outputs: first and number
    std::int64_t to = 0;                 ///< where the first goes in y; the next phase is 1 further, the next output
                                         ///< `stride`
  };
  std::vector<Phase> phases = {};  ///< ascending
  std::int64_t taps = 0;           ///< of each; 0: no input contributes
  std::int64_t tap_step = 1, dilation = 1;
  std::int64_t pad_begin = 0, pad_end = 0, out = 0;  ///< of the convolution
  std::vector<Run> runs = {};
};

/// All phases of the axis; phases outside of y may have no run.
std::vector<PhaseGroup> phase_groups(const TransposedAxis& axis);

}  // namespace lenslet
