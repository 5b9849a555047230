#pragma once
// Which kernel a node runs with, and why, looking at one node at a time.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/kernel.h"

namespace lenslet {

/// What was decided for one node.
struct Choice {
  /// One kernel's answer.
  struct Row {
    const Kernel* kernel = nullptr;
    std::string refusal;       ///< empty: it offers `candidate`
    Candidate candidate;       ///< the one with the least estimate, neighbours included
    double neighbours_us = 0;  ///< of the conversions around it
    double total_us() const { return candidate.estimated_us + neighbours_us; }
  };
  const Kernel* kernel = nullptr;
  Candidate candidate = {};
  std::string reason = {};
  std::vector<Row> rows = {};  ///< in the kernels' order
};

/// The format in which activations run: the fast convolutions of every device take it. nhwc; where those read by the
/// tensor copy engine (sm_90, 16 bits and TF32), with pixels at multiples of 16 bytes (aligned_nhwc), unless that were
/// twice the bytes, or there is one pixel.
Format home_format(const TensorType& type, const Target& target);

/// Microseconds of the LayoutConvert step between two formats of a 4-D tensor; 0 where no byte moves.
double conversion_us(const Format& from, const Format& to, const TensorType& type, const Target& target);
/// Those of a candidate's inputs and outputs, all neighbours being in home_format() (on the CPU: in the candidate's
/// own, but for halos), but on CUDA the inputs that are `given` in nchw, as the network's are.
double neighbours_us(const Problem& problem, const Candidate& candidate, const Target& target,
                     InputMask given = no_inputs);

/// The documented rule (docs/conv-choice.md): among the kernels that offer something, the least estimate with its
/// neighbours; at equal cost the earlier kernel. `forced` names one instead; if it refuses: Error(unsupported) with its
/// reason, or the rule's choice with `forced_where_accepted`. Error(unsupported) when no kernel takes the problem;
/// `what` describes it in words. `forced` is a name of some kernel of the operator.
Choice choose_kernel(const Problem& problem, const Target& target, std::string_view what, std::string_view forced = {},
                     bool forced_where_accepted = false, InputMask given = no_inputs);
/// The same among these kernels.
Choice choose_among(std::span<const Kernel* const> kernels, const Problem& problem, const Target& target,
                    std::string_view what, std::string_view forced = {}, bool forced_where_accepted = false,
                    InputMask given = no_inputs);

}  // namespace lenslet
