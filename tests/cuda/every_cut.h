#pragma once
// A convolution by an algorithm in every cut that it has kernels for: its planner takes one a problem, which is what
// conv_test.cpp checks.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/conv.h"
#include "ops/core/kernel.h"

namespace lenslet::test {

struct Cut {
  std::string config;
  std::string bits = {};                            ///< cuts that have the same here give the same bits
  std::optional<std::size_t> workspace_bytes = {};  ///< where it is not what is offered
  bool clusters = true;                             ///< false: as on a device without them
};

/// What cuts are made from: the problem in the types of a precision, and what the planner takes.
struct Planned {
  const ConvProblem& problem;
  const Candidate& candidate;
  const DeviceProfile& device;
};

/// Runs every cut on data that is drawn in the types of `precision` (x and residual are what the kernel gets, and what
/// it is judged by), each within what the kernel states. Each `among_others_every`-th cut runs once more with padded
/// pixels, where y may have them. Gives how many were checked, of which there must be one.
int check_cuts(std::string_view algorithm, ConvProblem problem, std::string_view precision, unsigned seed,
               const std::function<std::vector<Cut>(const Planned&)>& cuts_of, int among_others_every = 0);

/// y, NCHW, of x and w alone, in a precision and a configuration; in the planner's where that is empty.
Tensor convolved(std::string_view algorithm, ConvProblem problem, std::string_view precision, const Tensor& x,
                 const Tensor& w, const std::string& config = {});

/// x times ones, in a configuration: y is x as the kernel multiplied it. Fails the current check where that is not the
/// nearest number of TF32. `problem`: no fewer filters a group than channels, and y of x's height and width.
void check_rounds_to_tf32(std::string_view algorithm, const ConvProblem& problem, const std::string& config = {});

/// LENSLET_TEST_CUT="tile=64x64 slices=4": are only cuts asked for of which this is a part, to find out which one
/// hangs?
bool asked_for(const std::string& config);

}  // namespace lenslet::test
