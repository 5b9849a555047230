#pragma once
// A plan on one CUDA device: its arena, its stream, and the whole network recorded as a graph.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/base/cuda/buffer.h"
#include "runtime/base/cuda/session.h"
#include "runtime/exec/plan.h"

namespace lenslet::cuda {

struct Observation;

/// The plan's device must be current in every call, the destructor's included. One thread at a time.
class Network {
 public:
  /// Runs the network once, on zeros, so that every kernel is loaded, then records it. `plan` must outlive it.
  /// Error(device).
  explicit Network(const Plan& plan);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  /// Inputs are as planned. The outputs are on the host, valid until the next run.
  std::span<const Tensor> run(std::span<const Tensor> inputs);
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
    std::vector<Tensor> host_inputs;      // of constant inputs; else empty()
    std::span<std::byte> workspace;
  };
  // A graph input or output: where it lies on the device, and pinned memory for it on the host.
  struct Port {
    Tensor device, host;
  };

  Tensor bind(ValueId id);
  void bind_steps();
  void bind_ports();
  void launch(Step& step, const Context& context);
  void launch_all();
  void launch_each_and_wait();
  /// Waits for the stream. What failed is a kernel of some step.
  void wait() const;
  void run_observed(std::span<const Tensor> inputs);

  const Plan& plan_;
  Session session_;
  DeviceBuffer<std::byte> arena_;
  PinnedBuffer<std::byte> staging_;  // what Port::host points into
  std::vector<Step> steps_;
  std::vector<Port> inputs_, outputs_;
  std::vector<Tensor> host_outputs_;
  std::optional<GraphExec> recorded_;  // none: no step runs
  std::unique_ptr<Observation> observation_;
};

}  // namespace lenslet::cuda
