#pragma once
// A plan on one CUDA device: its arena, its stream, and the whole network recorded as a graph.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/cuda/buffer.h"
#include "base/cuda/graph.h"
#include "base/cuda/image_input.h"
#include "base/cuda/session.h"
#include "lenslet/runner.h"
#include "runtime/exec/constant_outputs.h"
#include "runtime/exec/plan.h"

namespace lenslet::cuda {

struct Observation;

/// The plan's device must be current in every call, the destructor's included. One thread at a time.
class Network {
 public:
  /// Puts the network into a graph. Where a library takes part it runs once before, on zeros: what a library loads in
  /// its first call cannot be captured. `plan` must outlive it. Error(device).
  Network(const Plan& plan, std::shared_ptr<Session> session);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  /// Queues the copy of a value, as planned, into an input's memory, where it stays until it is written again. A
  /// second value before the next run has to find the first one copied: staging memory is reused.
  void write_input(std::size_t input, const Tensor& value);
  /// Output number `output` of the last run on the device, or on the host where it is a constant; and the like, of this
  /// device, into an input.
  const Tensor& computed(std::size_t output) const { return computed_[output]; }
  void take_over(std::size_t input, const Tensor& computed);
  /// Queues a copy out of the app's memory, which is to stay until the run is done. False, and nothing is queued, for
  /// host memory that is not pinned. Error(invalid_argument) for what is `on_cuda` and no device memory.
  bool take_input(std::size_t input, const IoTensor& given);
  /// Where the following runs copy that output; null: to the Network's own memory. False likewise, and for a constant.
  bool send_output(std::size_t output, const IoTensor* wanted);
  /// From the host, at once, to where send_output() does not.
  void copy_output(const Tensor& computed, const IoTensor& wanted);
  /// What is queued from now on runs behind what lies in `stream`, a cudaStream_t, so far.
  void run_behind(void* stream);
  /// Waits, whatever failed.
  void let_go() noexcept;
  /// Queues what Runner::load_image describes. Errors as of to_input(), and Error(device).
  void write_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index);
  /// Queues zeros for one image of the batch.
  void write_blank(std::size_t input, std::int64_t index);
  /// Runs on what the inputs hold. The outputs are on the host, valid until the next run, or where send_output() says.
  /// `before(i)` is called before step i is launched, 0 for the whole, and may throw.
  using BeforeStep = std::function<void(std::size_t)>;
  std::span<const Tensor> run(const BeforeStep& before);
  /// As Runner::set_observer: here memory for the host's copies is taken.
  void observe(Observer observer);
  /// As Runner::time_device.
  std::vector<double> time(int repeats);

 private:
  // A step with every address resolved.
  struct Step {
    const PlanStep* plan = nullptr;
    const Node* node = nullptr;
    std::vector<Tensor> inputs, outputs;  // on the device
    std::span<std::byte> workspace;
  };
  // A graph input or output: where it lies on the device, and pinned memory for it on the host.
  struct Port {
    Tensor device, host;
    void* app = nullptr;  // of an output: where it goes instead of `host`
  };

  Tensor bind(ValueId id);
  void bind_steps();
  void bind_ports();
  void launch(Step& step, const Context& context);
  /// Where a step tells what is wrong with its inputs: fault_words.
  std::int32_t* fault(std::size_t step);
  void clear_faults();
  /// Error(invalid_argument) when a step has found its inputs wrong. What lies behind it has run on what it made.
  void check_faults();
  void launch_all();
  /// With an event before each step and after the last, where there are `boundaries`.
  GraphExec record(std::span<const Event> boundaries);
  /// EarlyWeights'.
  const void* weights_of(std::size_t step) const;
  void launch_each_and_wait(const BeforeStep& before);
  /// Waits for the stream. What failed is a kernel of some step.
  void wait() const;
  void run_observed(const BeforeStep& before);

  const Plan& plan_;
  std::shared_ptr<Session> session_;
  ImageInput images_;
  std::shared_ptr<std::byte> arena_;  // on the device; ours or out of Plan::allocator
  PinnedBuffer<int> faults_;          // by step fault_words: Context::fault
  PinnedBuffer<std::byte> staging_;   // what Port::host points into
  std::vector<Step> steps_;
  std::vector<Port> inputs_, outputs_;
  std::vector<std::size_t> output_ports_;  // by output: into outputs_; no_port: a constant, or it stays on the device
  std::optional<Event> app_work_;          // run_behind()
  std::vector<Tensor> host_outputs_;
  std::vector<Tensor> computed_;  // by output
  ConstantOutputs constant_outputs_;
  std::optional<GraphExec> recorded_;  // none: no step runs
  std::unique_ptr<Observation> observation_;
};

}  // namespace lenslet::cuda
