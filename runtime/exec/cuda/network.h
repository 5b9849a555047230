#pragma once
// A plan on one CUDA device: its arena, its stream, and the whole network as a CUDA graph.

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
#include "lenslet/timeline.h"
#include "runtime/exec/constant_outputs.h"
#include "runtime/exec/plan.h"

namespace lenslet::cuda {

struct Observation;

/// The plan's device must be current in every call, the destructor's included. One thread at a time.
class Network {
 public:
  /// Captures the network into a CUDA graph. If it uses a library, it first runs once on zeros, since a library's first
  /// call loads modules, which cannot be captured. `plan` must outlive it. Error(device).
  Network(const Plan& plan, std::shared_ptr<Session> session);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  /// Queues the copy of a value, as planned, into an input's memory. A second value before the next run waits for the
  /// first copy, since staging memory is reused.
  void write_input(std::size_t input, const Tensor& value);
  /// Output `output` of the last run, on the device, or on the host if it is a constant; and the same into an input.
  const Tensor& computed(std::size_t output) const { return computed_[output]; }
  void take_over(std::size_t input, const Tensor& computed);
  /// Queues a copy from the application's memory, which must stay unchanged until the run is done. Returns false,
  /// queueing nothing, for unpinned host memory. Error(invalid_argument) if `on_cuda` memory is not device memory.
  bool take_input(std::size_t input, const IoTensor& given);
  /// Sets where following runs copy that output; null: the Network's own memory. False as above, and for a constant.
  bool send_output(std::size_t output, const IoTensor* wanted);
  /// Copies an output from host memory to a destination that send_output() refused; synchronous.
  void copy_output(const Tensor& computed, const IoTensor& wanted);
  /// Work queued from now on runs after the work now in `stream`, a cudaStream_t.
  void run_behind(void* stream);
  /// Waits for the stream; ignores errors.
  void let_go() noexcept;
  /// Queues Runner::load_image. Errors as for to_input(), and Error(device).
  void write_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index);
  /// Queues zeros for one image of the batch.
  void write_blank(std::size_t input, std::int64_t index);
  /// Runs on the current inputs. Outputs are on the host, valid until the next run, or at their send_output()
  /// destination. Calls `before(i)`, which may throw, before launching step i (0 for the whole graph).
  using BeforeStep = std::function<void(std::size_t)>;
  std::span<const Tensor> run(const BeforeStep& before);
  /// As Runner::set_observer; allocates memory for the host copies.
  void observe(Observer observer);
  /// As Runner::time_device.
  std::vector<double> time(int repeats);
  /// As Runner::timeline, on the current inputs.
  Timeline timeline(int runs);

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
    void* app = nullptr;  // destination of an output instead of `host`
  };

  Tensor bind(ValueId id);
  void bind_steps();
  void bind_ports();
  void launch(Step& step, const Context& context);
  /// The step's words for reporting faults in its inputs (fault_words).
  std::int32_t* fault(std::size_t step);
  void clear_faults();
  /// Error(invalid_argument) if a step found its inputs invalid. Later steps have run on its output.
  void check_faults();
  void launch_all();
  /// Given `boundaries`, records an event before each step and after the last. Given `stamps`, on the device, writes
  /// there when the network begins, the end of each step, begin and end of each prefetch.
  GraphExec record(std::span<const Event> boundaries, std::uint64_t* stamps = nullptr);
  Timeline timeline_of(std::span<const std::uint64_t> stamps) const;
  /// The prefetches of EarlyWeights.
  const void* weights_of(std::size_t step) const;
  void launch_each_and_wait(const BeforeStep& before);
  /// Waits for the stream. An error stems from some step's kernel.
  void wait();
  void run_observed(const BeforeStep& before);

  const Plan& plan_;
  std::shared_ptr<Session> session_;
  ImageInput images_;
  std::shared_ptr<std::byte> arena_;  // on the device; our own or from Plan::allocator
  PinnedBuffer<int> faults_;          // by step fault_words: Context::fault
  PinnedBuffer<std::byte> staging_;   // backs Port::host
  std::vector<Step> steps_;
  std::vector<Port> inputs_, outputs_;
  std::vector<std::size_t> output_ports_;  // by output: into outputs_; no_port: a constant, or it stays on the device
  std::optional<Event> app_work_;          // run_behind()
  std::optional<Event> done_;              // of a long run, whose end leaves the core to others
  std::vector<Tensor> host_outputs_;
  std::vector<Tensor> computed_;  // by output
  ConstantOutputs constant_outputs_;
  std::optional<GraphExec> recorded_;  // empty: no step runs
  std::unique_ptr<Observation> observation_;
};

}  // namespace lenslet::cuda
