// A Runner on a CUDA device: makes the plan's device current around everything its Network does.
#include <exception>
#include <utility>

#include "runtime/exec/cuda/network.h"
#include "runtime/exec/runner_impl.h"

namespace lenslet::cuda {

namespace {

class CudaRunner final : public RunnerImpl {
 public:
  CudaRunner(Model model, std::shared_ptr<const Plan> plan_made) : RunnerImpl(std::move(model), std::move(plan_made)) {
    on_device([this] { network_ = std::make_unique<Network>(plan()); });
  }

  ~CudaRunner() override {
    try {
      on_device([this] { network_.reset(); });
    } catch (const std::exception&) {
      network_.reset();  // a device that failed cannot be made current; what can be freed is freed
    }
  }

  void set_observer(Observer observer) override {
    on_device([&] { network_->observe(std::move(observer)); });
  }

  std::vector<double> time_device(int repeats) override {
    std::vector<double> samples;
    on_device([&] { samples = network_->time(repeats); });
    return samples;
  }

 private:
  std::span<const Tensor> run_checked(std::span<const Tensor> inputs) override {
    std::span<const Tensor> outputs;
    on_device([&] { outputs = network_->run(inputs); });
    return outputs;
  }

  template <typename Work>
  void on_device(const Work& work) {
    try {
      const CurrentDevice current(plan().device.cuda_index);
      work();
    } catch (const Error& error) {
      throw error.within(model().name());
    }
  }

  std::unique_ptr<Network> network_;
};

}  // namespace

std::unique_ptr<RunnerImpl> make_runner(Model model, std::shared_ptr<const Plan> plan) {
  return std::make_unique<CudaRunner>(std::move(model), std::move(plan));
}

}  // namespace lenslet::cuda
