#pragma once
// Which algorithm a convolution runs with, and why.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/core/device_kind.h"

namespace lenslet {

/// All algorithms of a device, in candidate order: the only list.
std::span<const ConvAlgorithm* const> conv_algorithms(DeviceKind device);
/// Null when there is none of that name.
const ConvAlgorithm* find_conv_algorithm(DeviceKind device, std::string_view name);

struct ConvCandidateRow {
  const ConvAlgorithm* algorithm = nullptr;
  std::string refusal;  ///< empty: accepted
  double estimated_us = 0;
};

struct ConvChoice {
  const ConvAlgorithm* algorithm = nullptr;
  std::string reason;  ///< "forced", or the rule in words
  std::vector<ConvCandidateRow> candidates;
};

/// The documented rule (docs/conv-choice.md): among those that accept, the least estimated cost. `forced` names one
/// instead; if it refuses: Error(unsupported) with its reason, or the rule's choice with `forced_where_accepted`.
ConvChoice choose_conv(const ConvProblem& problem, DeviceKind device, const MachineRates& rates,
                       std::string_view forced = {}, bool forced_where_accepted = false);

/// Fixed rates for planning, from the CPU's vector width and `threads`: no timing, so that plans repeat exactly.
MachineRates cpu_rates(int threads);
/// The same for a CUDA device with so many multiprocessors, at the rates measured on an H200 (docs/conv-choice.md).
MachineRates cuda_rates(int multiprocessors);

}  // namespace lenslet
