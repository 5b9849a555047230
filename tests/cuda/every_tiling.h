#pragma once
// A kernel of the device in every cut that there is code for: its planner takes one a problem, which is what the cases
// of tests/ops and conv_test.cpp check.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/conv.h"
#include "ops/core/kernel.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::test {

/// A kernel on a problem and its inputs, as a plan poses it to the device. What it refers to outlives it.
class OnDevice {
 public:
  struct Ran {
    Tensor y;
    std::string call, where;
  };

  /// Ends the current case where the kernel refuses. `what` stands in messages.
  OnDevice(const Kernel& kernel, const Problem& problem, const Numerics& numerics, std::span<const Tensor> inputs,
           std::string what);
  const Problem& problem() const { return problem_; }
  const DeviceProfile& device() const { return device_; }
  const Candidate& planned() const { return planned_; }
  /// Output 0, between guards (run_between_guards); `clusters`: may there be any?
  Ran run(const Candidate& candidate, int in_place = -1, bool clusters = true) const;
  /// In the planner's configuration where that is empty.
  Ran run(const std::string& config) const;

 private:
  const Kernel& kernel_;
  const Problem& problem_;
  DeviceProfile device_, without_clusters_;
  std::span<const Tensor> inputs_;
  std::string what_;
  Candidate planned_;
};

struct Tiling {
  std::string config;
  std::string bits = {};                            ///< cuts that have the same here give the same bits
  std::optional<std::size_t> workspace_bytes = {};  ///< where it is not what is offered
  bool clusters = true;                             ///< false: as on a device without them
  int in_place = -1;                                ///< the input that y is written over
};

/// What cuts are made from: the problem in the types of a precision, and what the planner takes.
struct Planned {
  const ConvProblem& problem;
  const Candidate& candidate;
  const DeviceProfile& device;
};

/// Runs every cut, each within what the kernel states. Each `among_others_every`-th runs once more with padded pixels,
/// where y may have them. Gives how many were checked, of which there must be one.
int check_tilings(const OnDevice& kernel, const ConvData& judged, std::span<const Tiling> tilings,
                  int among_others_every = 0);

/// Of a convolution, on data that is drawn in the types of `precision` (x and residual are what the
/// kernel gets, and what it is judged by).
int check_tilings(std::string_view algorithm, ConvProblem problem, std::string_view precision, unsigned seed,
                  const std::function<std::vector<Tiling>(const Planned&)>& tilings_of, int among_others_every = 0);

/// The planner's alone.
std::vector<Tiling> as_planned(const Planned& planned);
/// What stores these: of float32, TF32.
Numerics numerics_of(DType storage);
const Kernel& kernel_named(std::string_view op, std::string_view name);

/// y, NCHW, of x and w alone, in a precision and a configuration; in the planner's where that is empty.
Tensor convolved(std::string_view algorithm, ConvProblem problem, std::string_view precision, const Tensor& x,
                 const Tensor& w, const std::string& config = {});

/// x times ones, in a configuration: y is x as the kernel multiplied it. Fails the current check where that is not the
/// nearest number of TF32. `problem`: no fewer filters a group than channels, and y of x's height and width.
void check_rounds_to_tf32(std::string_view algorithm, const ConvProblem& problem, const std::string& config = {});

/// LENSLET_TEST_TILING="tile=64x64 split_k=4": are only cuts asked for of which this is a part, to find out which one
/// hangs?
bool asked_for(const std::string& config);

}  // namespace lenslet::test
