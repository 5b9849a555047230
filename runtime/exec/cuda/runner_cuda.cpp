// A Runner on a CUDA device: makes the plan's device current around everything its Network does.
#include <exception>
#include <utility>

#include "runtime/exec/cuda/network.h"
#include "runtime/exec/runner_impl.h"

namespace lenslet::cuda {

namespace {

class CudaRunner final : public RunnerImpl {
 public:
  CudaRunner(Model model, std::shared_ptr<const Plan> plan_made, RunnerShare& share)
      : RunnerImpl(std::move(model), std::move(plan_made)) {
    on_device([&] {
      // A part planned later may be the first to need cuBLAS.
      if (share.session == nullptr || (plan().needs_cublas && !share.session->has_cublas()))
        share.session = std::make_shared<Session>(plan().device.cuda_index, plan().needs_cublas);
      network_ = std::make_unique<Network>(plan(), share.session);
    });
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

  Timeline timeline(std::span<const Tensor> inputs, int runs) override {
    run(inputs);
    Timeline taken;
    on_device([&] { taken = network_->timeline(runs); });
    return taken;
  }

 private:
  void write_input(std::size_t input, const Tensor& value) override {
    on_device([&] { network_->write_input(input, value); });
  }

  void write_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index) override {
    // Without the model's name as context: the fault is mostly the image's, and the CPU's Errors are the same.
    const CurrentDevice current(plan().device.cuda_index);
    network_->write_image(input, image, spec, index);
  }

  void write_blank(std::size_t input, std::int64_t index) override {
    on_device([&] { network_->write_blank(input, index); });
  }

  std::span<const Tensor> run_steps() override {
    std::span<const Tensor> outputs;
    on_device([&] { outputs = network_->run([this](std::size_t step) { end_if_cancelled(step); }); });
    return outputs;
  }

  const Tensor& computed(std::size_t output) const override { return network_->computed(output); }

  void take_over(std::size_t input, const Tensor& computed) override {
    on_device([&] { network_->take_over(input, computed); });
  }

  bool place_input(std::size_t input, const IoTensor* given) override {
    bool queued = given == nullptr;
    if (!queued) on_device([&] { queued = network_->take_input(input, *given); });
    return queued;
  }

  bool place_output(std::size_t output, const IoTensor* given) override {
    bool sent = false;
    on_device([&] { sent = network_->send_output(output, given); });
    return sent;
  }

  void copy_output(const Tensor& computed, const IoTensor& wanted) override {
    if (!wanted.on_cuda) return RunnerImpl::copy_output(computed, wanted);
    on_device([&] { network_->copy_output(computed, wanted); });
  }

  void wait_for(void* cuda_stream) override {
    on_device([&] { network_->run_behind(cuda_stream); });
  }

  void let_go() noexcept override {
    try {
      on_device([this] { network_->let_go(); });
    } catch (const std::exception&) {  // a device that failed has stopped by itself
    }
  }

  // Inputs are staged in memory that applications never see.
  std::span<const std::byte> own_memory() const override { return {}; }

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

std::shared_ptr<RunnerImpl> make_runner(Model model, std::shared_ptr<const Plan> plan, RunnerShare& share) {
  return std::make_shared<CudaRunner>(std::move(model), std::move(plan), share);
}

}  // namespace lenslet::cuda
