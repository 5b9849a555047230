#pragma once
// Runs a CUDA kernel in every compiled tile configuration. The planner uses only one for each problem, which tests/ops
// and conv_test.cpp cover.

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

/// A kernel on a problem and its inputs, as in a plan on the device. The referenced objects must outlive it.
class OnDevice {
 public:
  struct Ran {
    Tensor y;
    std::string call, where;
  };

  /// Ends the current case if the kernel refuses. `what` appears in messages.
  OnDevice(const Kernel& kernel, const Problem& problem, const Numerics& numerics, std::span<const Tensor> inputs,
           std::string what);
  const Problem& problem() const { return problem_; }
  const DeviceProfile& device() const { return device_; }
  const Candidate& planned() const { return planned_; }
  /// Output 0, between guards (run_between_guards); `clusters`: whether clusters are allowed.
  Ran run(const Candidate& candidate, int in_place = -1, bool clusters = true) const;
  /// An empty `config` stands for the planner's.
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
  std::string bits = {};                            ///< configurations with the same text here give the same bits
  std::optional<std::size_t> workspace_bytes = {};  ///< if it differs from the offered candidate's
  bool clusters = true;                             ///< false: as on a device without clusters
  int in_place = -1;                                ///< the input that y overwrites
};

/// Input of the enumeration: the problem with a precision's types, and the planner's choice.
struct Planned {
  const ConvProblem& problem;
  const Candidate& candidate;
  const DeviceProfile& device;
};

/// Runs every configuration and checks the kernel's tolerance. Every `among_others_every`-th runs once more with padded
/// pixels if y may have them. Returns the number of checked configurations, which must not be 0.
int check_tilings(const OnDevice& kernel, const ConvData& judged, std::span<const Tiling> tilings,
                  int among_others_every = 0);

/// The same for a convolution on random data in the types of `precision`; x and residual are rounded for both the
/// kernel and the reference.
int check_tilings(std::string_view algorithm, ConvProblem problem, std::string_view precision, unsigned seed,
                  const std::function<std::vector<Tiling>(const Planned&)>& tilings_of, int among_others_every = 0);

/// Only the planner's choice.
std::vector<Tiling> as_planned(const Planned& planned);
/// The numerics that store this type; TF32 for float32.
Numerics numerics_of(DType storage);
const Kernel& kernel_named(std::string_view op, std::string_view name);

/// y (NCHW) from x and w only, in a precision and a configuration; an empty one stands for the planner's.
Tensor convolved(std::string_view algorithm, ConvProblem problem, std::string_view precision, const Tensor& x,
                 const Tensor& w, const std::string& config = {});

/// Multiplies x by ones, so that y is x as rounded by the kernel. Fails the current check if y is not the nearest TF32
/// number. `problem`: at least as many filters a group as channels, and y of x's height and width.
void check_rounds_to_tf32(std::string_view algorithm, const ConvProblem& problem, const std::string& config = {});

/// Whether LENSLET_TEST_TILING, if set ("tile=64x64 split_k=4"), is part of `config`. It selects configurations, to
/// find the one that hangs.
bool asked_for(const std::string& config);

}  // namespace lenslet::test
