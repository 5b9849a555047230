// A Runner for changing input shapes: keeps one Runner for each of the last few sets of shapes.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "runtime/exec/kept_runners.h"
#include "runtime/exec/runner_impl.h"

namespace lenslet {

namespace {

const Tensor& tensor_of(const Tensor& input) { return input; }
const Tensor& tensor_of(const IoTensor& input) { return input.tensor; }

class ShapesRunner final : public RunnerImpl {
 public:
  ShapesRunner(Model model, std::shared_ptr<const Plan> plan_made, PlanOptions options,
               std::shared_ptr<RunnerImpl> first, RunnerShare share)
      : RunnerImpl(std::move(model), std::move(plan_made)),
        options_(std::move(options)),
        share_(std::move(share)),
        runners_(1 + options_.other_shapes) {
    std::string key;
    for (std::size_t i = 0; i < plan().info.inputs.size(); ++i)
      key += plan().graph.input_ports[i].unread ? "" : plan().info.inputs[i].second.str();
    runners_.add(std::move(key), std::move(first));
    options_.calibration.clear();  // only checked for the first plan
  }

  std::span<const Tensor> run(std::span<const Tensor> inputs) override { return planned_for(inputs).run(inputs); }
  void load_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index) override {
    runners_.last()->load_image(input, image, spec, index);
  }
  std::span<const Tensor> run_loaded() override { return runners_.last()->run_loaded(); }
  std::span<const Tensor> run(std::span<const IoTensor> inputs, const RunOptions& options) override {
    return planned_for(inputs).run(inputs, options);
  }
  std::span<const Tensor> run_loaded(const RunOptions& options) override {
    return runners_.last()->run_loaded(options);
  }

  const PlanInfo& info() const override { return runners_.last()->info(); }
  void set_observer(Observer observer) override {
    observer_ = std::move(observer);
    runners_.for_each([&](RunnerImpl& runner) { runner.set_observer(observer_); });
  }
  std::vector<double> time_device(int repeats) override { return runners_.last()->time_device(repeats); }
  Timeline timeline(std::span<const Tensor> inputs, int runs) override {
    return planned_for(inputs).timeline(inputs, runs);
  }

 private:
  // Invalid inputs are refused by the most recently used Runner.
  template <typename Input>
  RunnerImpl& planned_for(std::span<const Input> inputs) {
    const auto& ports = plan().graph.input_ports;
    std::string key;
    std::vector<std::pair<std::string, Shape>> shapes;
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].unread) continue;
      if (i >= inputs.size() || tensor_of(inputs[i]).empty()) return *runners_.last();
      shapes.emplace_back(plan().info.inputs[i].first, tensor_of(inputs[i]).shape());
      key += shapes.back().second.str();
    }
    if (inputs.size() > ports.size()) return *runners_.last();
    if (RunnerImpl* const known = runners_.use(key)) return *known;
    options_.input_shapes = std::move(shapes);
    std::shared_ptr<RunnerImpl> made = make_runner(model(), options_, share_);
    if (observer_) made->set_observer(observer_);
    runners_.make_room();
    return runners_.add(std::move(key), std::move(made));
  }

  // Never called: run() and load_image() are forwarded as a whole.
  void write_input(std::size_t input, const Tensor& value) override { runners_.last()->write_input(input, value); }
  void write_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index) override {
    runners_.last()->write_image(input, image, spec, index);
  }
  void write_blank(std::size_t input, std::int64_t index) override { runners_.last()->write_blank(input, index); }
  std::span<const Tensor> run_steps() override { return runners_.last()->run_steps(); }
  const Tensor& computed(std::size_t output) const override { return runners_.last()->computed(output); }
  std::span<const std::byte> own_memory() const override { return runners_.last()->own_memory(); }
  void wait_for(void* cuda_stream) override { runners_.last()->wait_for(cuda_stream); }

  PlanOptions options_;
  RunnerShare share_;
  KeptRunners runners_;
  Observer observer_;
};

}  // namespace

std::shared_ptr<RunnerImpl> make_shapes_runner(const Model& model, const PlanOptions& options,
                                               std::shared_ptr<RunnerImpl> first, RunnerShare share) {
  std::shared_ptr<const Plan> plan = first->shared_plan();
  return std::make_shared<ShapesRunner>(model, std::move(plan), options, std::move(first), std::move(share));
}

}  // namespace lenslet
