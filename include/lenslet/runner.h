#pragma once
// Runs a model: one Runner per thread, any number per Model.

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "lenslet/export.h"
#include "lenslet/image.h"
#include "lenslet/model.h"

namespace lenslet {

struct Timeline;  // lenslet/timeline.h

/// Passed to the observer after each step; all references are valid during the call only. Tensors are in the step's own
/// Format, perhaps as channels of a larger tensor: Tensor::to_format(formats::nchw) reads any of them. Without
/// PlanOptions::keep_all_values an input may already share its memory with the output (in-place steps). An exception
/// from an observer ends the run and leaves run(). An observer may destroy the Runner: run() then ends with
/// Error(invalid_argument). Any other call on the Runner except plan() is refused with the same error.
struct LayerEvent {
  int step = 0;
  const StepInfo* info = nullptr;
  std::span<const Tensor> inputs;  ///< in node order; empty() for an omitted optional input
  std::span<const Tensor> outputs;
  double ms = 0;  ///< time of the step alone: wall time on the CPU, device time on CUDA
};
using Observer = std::function<void(const LayerEvent&)>;

/// An input or output of a run in the application's memory.
struct IoTensor {
  Tensor tensor;         ///< a view, layout nchw; empty() for an output that stays in the Runner's memory
  bool on_cuda = false;  ///< data() is a CUDA device address (or managed memory), which the host does not read
};

/// Options of a single run.
struct RunOptions {
  /// Destinations of the outputs: none, or one for each of Model::outputs(), with the resulting dtype and shape. Host
  /// memory; must not overlap. Contents are undefined after an error.
  std::span<const IoTensor> outputs{};
  /// CUDA: a cudaStream_t. The run starts after the work queued there so far, and is complete when the call returns.
  /// Null: CUDA's legacy default stream if an input or output is `on_cuda`, else none.
  void* cuda_stream = nullptr;
  /// Ends the run with Error(cancelled) before its next step or band of steps. On CUDA the whole network is one launch,
  /// which cannot be cancelled once made; with an observer or `sync_each_step` each step is a launch.
  std::stop_token stop{};
};

class RunnerImpl;

/// Plans on construction: chooses algorithms, packs weights (shared between Runners of one Model), lays out and
/// allocates memory. `run` makes no choice and allocates nothing. One thread at a time per Runner: a call during
/// another one is refused with Error(invalid_argument), as is any call on a moved-from Runner. In a fork()ed child, a
/// CPU Runner starts its own threads, and a CUDA Runner gives Error(device). On CUDA each Runner has its own stream and
/// runs the whole network as one CUDA graph, captured after a run on zeros. After a device failure every call gives
/// Error(device).
class LENSLET_API Runner {
 public:
  explicit Runner(const Model& model, const PlanOptions& options = {});
  ~Runner();
  Runner(Runner&&) noexcept;
  Runner& operator=(Runner&&) noexcept;

  /// Inputs in the order of Model::inputs(), layout nchw, dtype and shape as planned (Error(invalid_argument)
  /// otherwise, unless PlanOptions::other_shapes; nothing has run then). The outputs, layout nchw, are owned by the
  /// Runner and valid until its next run or load_image or its end. An application may overwrite them and may pass them
  /// back as inputs: these are copied first, into memory allocated once, in the first run that needs it. Unread inputs
  /// (PortInfo::unread) may be empty(), or missing at the end.
  std::span<const Tensor> run(std::span<const Tensor> inputs);
  std::span<const Tensor> run(const Tensor& input) { return run({&input, 1}); }
  /// The same on the application's memory, which must not change during the call. The CPU reads inputs and writes
  /// outputs in place if they are 16-byte aligned, do not overlap, and the plan neither overwrites the input nor
  /// returns it as an output; else it copies. CUDA always copies: device memory on the device, pinned memory directly,
  /// other memory through pinned staging. Returns the outputs that are not `on_cuda`, and empty() for the others.
  /// Error(invalid_argument) as for run() and for outputs that do not fit; nothing has run then, unless shapes depend
  /// on computed data. May allocate in the first call.
  std::span<const Tensor> run(std::span<const IoTensor> inputs, const RunOptions& options);

  /// to_input() directly into the network's input memory: image `index` of the batch of a floating-point input,
  /// numbered as in Model::inputs(). On CUDA the 8-bit pixels are uploaded and the GPU does the rest, with the same
  /// bits; the call returns once `image` is no longer needed, often before the GPU is done. Pixels that are `on_cuda`,
  /// on the Runner's device, are complete when the call is made, and stay until the next run has ended. May allocate:
  /// staging memory grows with the largest image. Invalidates the outputs of the last run. Errors as for to_input(),
  /// Error(invalid_argument) for an input that does not exist or has a value in PlanOptions::input_values, and
  /// Error(device); images loaded before stay.
  void load_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index = 0);
  /// `run` on the images loaded since the last run of either kind. Images of a batch that were not loaded are zeros;
  /// inputs in PlanOptions::input_values have that value. Error(invalid_argument) if any other input has nothing
  /// loaded; nothing has run then.
  std::span<const Tensor> run_loaded();
  std::span<const Tensor> run_loaded(const RunOptions& options);

  const PlanInfo& plan() const;
  /// Sets a function that is called after each step; an empty one switches it off. On the CPU, bands of steps
  /// (PlanInfo::bands) then run step by step, which takes longer in all. On CUDA each step's values are copied to the
  /// host as soon as they are computed (in-place steps included), and a run executes each step twice: once within the
  /// whole network for the times, then one by one.
  void set_observer(Observer observer);
  /// CUDA: `repeats` (>= 1) samples of the device time in milliseconds of the whole network, on the inputs of the last
  /// run, without host copies. Each sample is the mean of enough back-to-back replays to exceed 2 ms. Empty on the CPU.
  std::vector<double> time_device(int repeats);
  /// When threads and streams were busy in one run as run() makes it, bands included: the one of median duration of
  /// `runs` (>= 1), which time stamps stretch a little. Errors as of run(). On CUDA the device's time, without host
  /// copies: a kernel that writes the time stands behind each step in the graph. Empty on CUDA if shapes depend on
  /// computed values.
  Timeline timeline(std::span<const Tensor> inputs, int runs = 5);

 private:
  std::shared_ptr<RunnerImpl> impl_;  // also held by a run
};

}  // namespace lenslet
