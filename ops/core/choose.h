#pragma once
// Chooses the kernel of a node, one node at a time, and records why.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/kernel.h"

namespace lenslet {

/// The decision for one node.
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

/// The format in which activations are kept, which the fast convolutions of the device read: nhwc. With TMA (sm_90, 16
/// bits and TF32) pixels are aligned to 16 bytes (aligned_nhwc), unless that doubles the bytes or there is one pixel.
Format home_format(const TensorType& type, const Target& target);

/// Microseconds of a LayoutConvert step between two formats of a 4-D tensor; 0 where no byte moves.
double conversion_us(const Format& from, const Format& to, const TensorType& type, const Target& target);
/// Conversions at a candidate's inputs and outputs. All neighbours are in home_format() (on the CPU: in the candidate's
/// own, without halos), except on CUDA inputs that are `given`, which are nchw like the network's.
double neighbours_us(const Problem& problem, const Candidate& candidate, const Target& target,
                     InputMask given = no_inputs);

/// The documented rule (docs/conv-choice.md): the least estimate, neighbours included, among the kernels that offer a
/// candidate; ties go to the earlier kernel. `forced` names a kernel of the operator instead; if it refuses,
/// Error(unsupported) gives its reason, or with `forced_where_accepted` the rule decides. Error(unsupported) when no
/// kernel accepts the problem; `what` describes it in words.
Choice choose_kernel(const Problem& problem, const Target& target, std::string_view what, std::string_view forced = {},
                     bool forced_where_accepted = false, InputMask given = no_inputs);
/// The same rule among the given kernels.
Choice choose_among(std::span<const Kernel* const> kernels, const Problem& problem, const Target& target,
                    std::string_view what, std::string_view forced = {}, bool forced_where_accepted = false,
                    InputMask given = no_inputs);

}  // namespace lenslet
