#pragma once
// Times one kernel on one problem, packed and bound as in a plan. The verb `bench conv`, lenslet-microbench and
// tools/peers/cudnn use it. Unlike the other tools they include ops/, because the public interface runs networks only.
// It times any operator:
//
//   const Problem problem(make_op("Softmax", "", {}, 1), inputs);
//   const Choice choice = choose_kernel(problem, {timer.device()}, "softmax");
//   timer.measure(*choice.kernel, problem, choice.candidate, drawn_inputs(problem), 0.1).us.median;

#include <memory>
#include <span>
#include <vector>

#include "base/cuda_built.h"  // for the verbs that time, which include base/ only through this header
#include "ops/core/choose.h"
#include "tools/measuring/peak.h"
#include "tools/measuring/samples.h"

namespace lenslet::tool {

/// A tensor in format nchw for each input of a problem: constants, random values (draw.h), or empty() if omitted.
std::vector<Tensor> drawn_inputs(const Problem& problem);

/// A kernel bound to a problem, with the memory of its runs on the host.
class BoundCall {
 public:
  /// `inputs` as from drawn_inputs(). Errors as of Kernel::bind().
  BoundCall(const Kernel& kernel, const Problem& problem, const Candidate& candidate, const DeviceProfile& device,
            std::span<const Tensor> inputs);
  /// For CPU kernels; `pool` has DeviceProfile::units threads.
  void run(ThreadPool& pool);

  std::unique_ptr<const BoundKernel> bound;
  std::vector<Tensor> inputs;   ///< in the candidate's formats; empty() if run() does not read it
  std::vector<Tensor> outputs;  ///< for the CPU, filled with 0xff (NaN) to reveal unwritten elements
  Tensor blob;                  ///< bytes; empty(): the kernel packs nothing
  std::size_t workspace_bytes = 0;

 private:
  Tensor workspace_;
};

struct Measured {
  Quantiles us;                 ///< of one run
  std::vector<Tensor> outputs;  ///< in the candidate's formats; an unwritten float is NaN
};

class KernelTimer {
 public:
  virtual ~KernelTimer() = default;
  /// The device that plans are made for.
  virtual const DeviceProfile& device() const = 0;
  /// For products in this precision.
  virtual Peak peak(const Numerics& numerics = {}) = 0;
  /// `candidate` is one of the kernel's, possibly with another configuration; `inputs` as from drawn_inputs().
  /// `seconds`: time for samples; at least least_samples() of the first run are taken.
  virtual Measured measure(const Kernel& kernel, const Problem& problem, const Candidate& candidate,
                           std::span<const Tensor> inputs, double seconds) = 0;
};

/// Always on the same memory, which stays in the caches if it fits.
std::unique_ptr<KernelTimer> cpu_timer(int threads);

enum class Buffers {
  rotating,  ///< several sets of inputs, blob and outputs in turn, together larger than L2, so that every run is cold
  same,      ///< always the same memory, which stays in L2 if it fits, as in ../shared/peers/conv_bench.py
};
/// Replays a CUDA graph of many runs (replays.h). Builds with CUDA only; Error(device).
std::unique_ptr<KernelTimer> cuda_timer(int device, Buffers buffers = Buffers::rotating);

}  // namespace lenslet::tool
