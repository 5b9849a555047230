#pragma once
// What every Runner does, whatever the device: checks its inputs, then lets the device's half run.

#include <memory>
#include <span>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/plan.h"

namespace lenslet {

class RunnerImpl {
 public:
  virtual ~RunnerImpl() = default;
  RunnerImpl(const RunnerImpl&) = delete;
  RunnerImpl& operator=(const RunnerImpl&) = delete;

  std::span<const Tensor> run(std::span<const Tensor> inputs) {
    check_inputs(inputs);
    return run_checked(inputs);
  }
  virtual void set_observer(Observer observer) = 0;
  virtual std::vector<double> time_device(int repeats) = 0;
  const PlanInfo& info() const { return plan().info; }

 protected:
  RunnerImpl(Model model, std::shared_ptr<const Plan> plan) : model_(std::move(model)), plan_(std::move(plan)) {}
  virtual std::span<const Tensor> run_checked(std::span<const Tensor> inputs) = 0;

  const Model& model() const { return model_; }
  const Plan& plan() const { return *plan_; }

 private:
  void check_inputs(std::span<const Tensor> inputs) const;

  Model model_;  // keeps the constants alive
  std::shared_ptr<const Plan> plan_;
};

/// Error(limit) when memory for the arena is short.
std::unique_ptr<RunnerImpl> make_cpu_runner(Model model, std::shared_ptr<const Plan> plan);

namespace cuda {
/// Runs the network once, on zeros, and records it. Error(device). Only in builds with the CUDA half.
std::unique_ptr<RunnerImpl> make_runner(Model model, std::shared_ptr<const Plan> plan);
}  // namespace cuda

}  // namespace lenslet
