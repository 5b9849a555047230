#pragma once
// Times one kernel on one problem, prepared and bound as a plan does it. The verb `bench conv`, lenslet-microbench and
// tools/peers/cudnn are made of it; unlike the other tools they see the kernels themselves (ops), because the public
// interface runs networks only. Any operator will do:
//
//   const Problem problem(make_op("Softmax", "", {}, 1), inputs);
//   const Choice choice = choose_kernel(problem, {timer.device()}, "softmax");
//   timer.measure(*choice.kernel, problem, choice.candidate, drawn_inputs(problem), 0.1).us.median;

#include <memory>
#include <span>
#include <vector>

#include "base/cuda_built.h"  // for the verbs that time, which see base by this header alone
#include "ops/core/choose.h"
#include "tools/measuring/peak.h"
#include "tools/measuring/samples.h"

namespace lenslet::tool {

/// A tensor, format nchw, for each input of a problem: constants as they are, the others drawn (draw.h), empty() where
/// an input is left out.
std::vector<Tensor> drawn_inputs(const Problem& problem);

/// A kernel bound to a problem, with what its runs take, in host memory.
class BoundCall {
 public:
  /// `inputs` as of drawn_inputs(). Errors as of Kernel::bind().
  BoundCall(const Kernel& kernel, const Problem& problem, const Candidate& candidate, const DeviceProfile& device,
            std::span<const Tensor> inputs);
  /// Kernels of the CPU; `pool` has DeviceProfile::units threads.
  void run(ThreadPool& pool);

  std::unique_ptr<const BoundKernel> bound;
  std::vector<Tensor> inputs;   ///< in the candidate's formats; empty() where run() reads none
  std::vector<Tensor> outputs;  ///< of the CPU's, every byte 0xff at first (NaN): one that is not written shows
  Tensor blob;                  ///< bytes; empty(): the kernel prepares none
  std::size_t workspace_bytes = 0;

 private:
  Tensor workspace_;
};

struct Measured {
  Quantiles us;                 ///< of one run
  std::vector<Tensor> outputs;  ///< in the candidate's formats; a float that was not written is NaN
};

class KernelTimer {
 public:
  virtual ~KernelTimer() = default;
  /// What plans for this device are made for.
  virtual const DeviceProfile& device() const = 0;
  /// Of this arithmetic's products.
  virtual Peak peak(const Numerics& numerics = {}) = 0;
  /// `candidate` is one that the kernel offers for the problem, or one with another configuration; `inputs` as of
  /// drawn_inputs(). `seconds`: time to spend on samples; least_samples() of the first run are taken at least.
  virtual Measured measure(const Kernel& kernel, const Problem& problem, const Candidate& candidate,
                           std::span<const Tensor> inputs, double seconds) = 0;
};

/// Always on the same memory: what fits the caches is found there.
std::unique_ptr<KernelTimer> cpu_timer(int threads);

enum class Buffers {
  rotating,  ///< several sets of inputs, blob and outputs in turn, together larger than L2: every run finds it cold
  same,      ///< what fits L2 is found there, as ../shared/peers/conv_bench.py measures
};
/// Through replays of a CUDA graph of many runs (replays.h). Builds with CUDA only; Error(device).
std::unique_ptr<KernelTimer> cuda_timer(int device, Buffers buffers = Buffers::rotating);

}  // namespace lenslet::tool
