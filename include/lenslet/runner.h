#pragma once
// Runs a model: one Runner per thread, as many as wanted per Model.

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

/// What the observer sees after each step. Everything referred to is valid during the call only. Tensors lie as the
/// step has them (Format), among others' values it may be: Tensor::to_format(formats::nchw) reads any of them. Without
/// PlanOptions::keep_all_values an input may already share its memory with the output (in-place steps). What an
/// observer throws comes out of run, which then ends. It may destroy the Runner: run ends with Error(invalid_argument)
/// after it; everything else that it asks of the Runner but plan() is refused with the same.
struct LayerEvent {
  int step = 0;
  const StepInfo* info = nullptr;
  std::span<const Tensor> inputs;  ///< in node order; empty() for an omitted optional input
  std::span<const Tensor> outputs;
  double ms = 0;  ///< of the step alone: wall time on the CPU, the device's own time on CUDA
};
using Observer = std::function<void(const LayerEvent&)>;

/// An input or an output of a run in the app's memory.
struct IoTensor {
  Tensor tensor;         ///< a view, layout nchw; empty() for an output that stays in the Runner's memory
  bool on_cuda = false;  ///< data() is an address on a CUDA device (or managed), which the host does not read
};

/// How a single run is done.
struct RunOptions {
  /// Where outputs go: none, or one for each of Model::outputs(), of the dtype and shape that comes out. Host memory
  /// apart from each other's. After an error they hold anything.
  std::span<const IoTensor> outputs{};
  /// CUDA: a cudaStream_t. The run begins behind what is queued there so far; it is done when the call returns. Null is
  /// CUDA's legacy default stream where an input or an output is `on_cuda`, and else none.
  void* cuda_stream = nullptr;
  /// Ends the run, with Error(cancelled), before its next step, or the next band of steps. On CUDA a network is one
  /// launch: only what was not launched yet can be cancelled, which with an observer or `sync_each_step` are steps.
  std::stop_token stop{};
};

class RunnerImpl;

/// Plans on construction: algorithms chosen, weights transformed (shared between Runners of one Model), memory laid
/// out and allocated. `run` chooses nothing and allocates nothing. One thread at a time per Runner: a call that comes
/// while another works is refused with Error(invalid_argument), as is any on a Runner that was moved from. In a child
/// that fork() made, a CPU Runner starts threads of its own, and one on CUDA gives Error(device).
/// On CUDA each Runner has a stream of its own, and the whole network is one recorded graph; it was run once, on zeros,
/// before it was recorded. A device that has failed stays failed: Error(device) from then on.
class LENSLET_API Runner {
 public:
  explicit Runner(const Model& model, const PlanOptions& options = {});
  ~Runner();
  Runner(Runner&&) noexcept;
  Runner& operator=(Runner&&) noexcept;

  /// Inputs in the order of Model::inputs(), layout nchw, dtype and shape as planned (Error(invalid_argument)
  /// otherwise, unless PlanOptions::other_shapes; nothing has run then). The outputs, layout nchw, stay valid until the
  /// next run or load_image or the end of the Runner, whose memory they are: an app may write over them, and may give
  /// them back as inputs (such inputs are copied apart first; that copy's memory is taken once, in the first run that
  /// needs it). Inputs that nothing reads (PortInfo::unread) may be empty(), or missing at the end.
  std::span<const Tensor> run(std::span<const Tensor> inputs);
  std::span<const Tensor> run(const Tensor& input) { return run({&input, 1}); }
  /// The same on the app's memory, which must stay as it is during the call. The CPU reads inputs and writes outputs
  /// where they lie if they are 16-byte aligned, apart from each other, and the plan neither overwrites the input nor
  /// gives it back; else it copies, as does CUDA: from and to device memory on the device, pinned memory at once, other
  /// memory by way of pinned memory. The result has those outputs that are not `on_cuda`, empty() in place of others.
  /// Error(invalid_argument) as of run(), and for outputs that do not fit: nothing has run then, unless shapes follow
  /// from what is computed. May allocate in the first call.
  std::span<const Tensor> run(std::span<const IoTensor> inputs, const RunOptions& options);

  /// to_input() straight into the memory that the network reads: image `index` of the batch of a floating-point input,
  /// counted as in Model::inputs(). On CUDA the 8-bit pixels are uploaded and the GPU does the rest, to the same bits;
  /// the call returns when `image` may go, often before the GPU is done. May allocate: staging memory grows with the
  /// largest image. Ends the outputs of the last run. Errors as of to_input(), Error(invalid_argument) for an input
  /// that does not exist or has a value in PlanOptions::input_values, and Error(device); what was loaded before stays.
  void load_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index = 0);
  /// `run` on what was loaded since the last run of either kind; images of a batch that were not are zeros, and inputs
  /// with a value in PlanOptions::input_values have that one. Error(invalid_argument) when nothing was loaded into some
  /// other input; nothing has run then.
  std::span<const Tensor> run_loaded();
  std::span<const Tensor> run_loaded(const RunOptions& options);

  const PlanInfo& plan() const;
  /// Called after each step from then on; an empty function switches it off. On the CPU steps then run one by one that
  /// a run takes in bands otherwise (PlanInfo::bands): their times add up to more. On CUDA the values are copied to the
  /// host for it, as they were when they were made (in-place steps included), and a run takes each step twice: all at
  /// once for the times, then one by one.
  void set_observer(Observer observer);
  /// CUDA: `repeats` (>= 1) samples of the milliseconds that the device takes for the whole network, on the inputs of
  /// the last run, without copies to and from the host. A sample is the mean over replays back to back, as many as make
  /// it longer than 2 ms. The CPU: empty.
  std::vector<double> time_device(int repeats);

 private:
  std::shared_ptr<RunnerImpl> impl_;  // a run holds it, too
};

}  // namespace lenslet
