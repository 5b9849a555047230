// Runs a network with data-dependent shapes in stages: the part planned beforehand, the nodes between on the host, then
// the rest, planned for the shapes now known. A few such plans are kept.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/float_environment.h"
#include "base/time_stamps.h"
#include "runtime/exec/kept_runners.h"
#include "runtime/exec/runner_impl.h"
#include "runtime/graph/evaluate.h"
#include "runtime/graph/infer_node.h"

namespace lenslet {

namespace {

// Planning the rest again for each number of boxes takes milliseconds; each kept plan takes an arena.
constexpr std::size_t most_kept = 4;

void add_to_key(std::string& key, const Tensor& tensor, bool with_value) {
  key += fmt::format("|{}{}", to_string(tensor.dtype()), tensor.shape().str());
  if (with_value) key.append(static_cast<const char*>(tensor.data()), tensor.bytes());
}

class StagedRunner final : public RunnerImpl {
 public:
  StagedRunner(Model model, std::shared_ptr<const Plan> plan_made, std::shared_ptr<RunnerImpl> early, RunnerShare share)
      : RunnerImpl(std::move(model), std::move(plan_made)),
        early_(std::move(early)),
        share_(std::move(share)),
        info_(plan().info),
        made_(late().graph.values.size()),
        outputs_(late().outputs.size()) {}

  const PlanInfo& info() const override { return info_; }

  void set_observer(Observer observer) override {
    observer_ = std::move(observer);
    observe(*early_, 0);
    kept_.for_each([&](RunnerImpl& rest) { observe(rest, late_begin()); });
  }

  std::vector<double> time_device(int repeats) override {
    std::vector<double> samples = early_->time_device(repeats);
    if (kept_.last() == nullptr) return samples;
    const std::vector<double> rest = kept_.last()->time_device(repeats);
    for (std::size_t i = 0; i < std::min(samples.size(), rest.size()); ++i) samples[i] += rest[i];
    return samples;
  }

  Timeline timeline(std::span<const Tensor> inputs, int runs) override {
    return plan().device.is_cuda() ? Timeline() : RunnerImpl::timeline(inputs, runs);
  }

 private:
  const LatePart& late() const { return *plan().late; }
  std::size_t late_begin() const { return plan().steps.size() + late().on_host.size(); }

  void write_input(std::size_t input, const Tensor& value) override { early_->write_input(input, value); }
  void take_over(std::size_t input, const Tensor& computed) override { early_->take_over(input, computed); }
  void write_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index) override {
    early_->write_image(input, image, spec, index);
  }
  void write_blank(std::size_t input, std::int64_t index) override { early_->write_blank(input, index); }
  std::span<const std::byte> own_memory() const override { return early_->own_memory(); }
  // No place_output(): outputs stay in the part that computes them and are copied.
  bool place_input(std::size_t input, const IoTensor* given) override { return early_->place_input(input, given); }
  void copy_output(const Tensor& computed, const IoTensor& wanted) override { early_->copy_output(computed, wanted); }
  void wait_for(void* cuda_stream) override { early_->wait_for(cuda_stream); }
  void let_go() noexcept override { early_->let_go(); }
  const Tensor& computed(std::size_t output) const override { return outputs_[output]; }

  std::span<const Tensor> run_steps() override {
    early_->stop_by(stop());
    const std::span<const Tensor> early = early_->run_steps();
    for (std::size_t i = 0; i < early.size(); ++i) made_[at(late().early_outputs[i])] = early[i];
    info_.steps.resize(plan().steps.size());
    for (const Node& node : late().on_host) compute(node);
    end_if_cancelled(plan().steps.size());
    RunnerImpl& rest = planned();
    rest.stop_by(stop());
    const std::vector<ValueId>& inputs = late().graph.inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (const auto output = early_output(inputs[i]))
        rest.take_over(i, early_->computed(*output));
      else
        rest.write_input(i, made_[at(inputs[i])]);
    }
    TimeStamps::count_steps_from(static_cast<int>(late_begin()));
    const std::span<const Tensor> last = rest.run_steps();
    TimeStamps::count_steps_from(-static_cast<int>(late_begin()));
    std::ranges::copy(rest.info().steps, std::back_inserter(info_.steps));
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const LatePart::Output& from = late().outputs[i];
      outputs_[i] = (from.late ? last : early)[from.index];
      info_.outputs[i].second = outputs_[i].shape();
    }
    return outputs_;
  }

  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  const Tensor& known(ValueId id) const {
    const Value& value = late().graph.value(id);
    return value.is_constant() ? value.constant : made_[at(id)];
  }

  // A node run on the host, and its step.
  void compute(const Node& node) {
    std::vector<Tensor> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(id == no_id ? Tensor() : known(id));
    StepInfo step;
    std::vector<Tensor> results;
    TimeStamps::enter_step(static_cast<int>(info_.steps.size()));
    const auto begin = std::chrono::steady_clock::now();
    try {
      const FloatEnvironment environment(plan().flush_denormals);
      results = infer_and_evaluate(node.op, inputs, host_);
    } catch (const Error& error) {
      throw error.within(model().name() + ": " + node.label());
    }
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    step.name = node.name;
    step.op = node.type();
    step.config = "on the host";
    step.attributes = node.op->attributes();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      step.inputs.push_back(node.inputs[i] == no_id ? "" : late().graph.value(node.inputs[i]).name);
      step.bytes += inputs[i].bytes();
    }
    results.resize(node.outputs.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      step.outputs.push_back(node.outputs[i] == no_id ? "" : late().graph.value(node.outputs[i]).name);
      step.output_shapes.push_back(results[i].shape());
      step.output_formats.push_back(results[i].format());
      step.bytes += results[i].bytes();
      if (node.outputs[i] != no_id) made_[at(node.outputs[i])] = results[i];
    }
    info_.steps.push_back(std::move(step));
    if (!observer_) return;
    LayerEvent event;
    event.step = static_cast<int>(info_.steps.size()) - 1;
    event.info = &info_.steps.back();
    event.inputs = inputs;
    event.outputs = results;
    event.ms = elapsed.count();
    observer_(event);
  }

  // The Runner of the rest for the current shapes.
  RunnerImpl& planned() {
    std::string key;
    for (std::size_t i = 0; i < late().graph.inputs.size(); ++i)
      add_to_key(key, shape_of(late().graph.inputs[i]), late().planned_for_value[i]);
    if (RunnerImpl* const known = kept_.use(key)) return *known;
    std::shared_ptr<RunnerImpl> rest = plan_rest();
    if (observer_) observe(*rest, late_begin());
    kept_.make_room();
    return kept_.add(std::move(key), std::move(rest));
  }

  // An arriving input has a shape and, if it decides shapes, a value.
  std::shared_ptr<RunnerImpl> plan_rest() {
    Graph graph = late().graph;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      const ValueId id = graph.inputs[i];
      const Tensor& arrived = shape_of(id);
      // Value names need not be unique.
      graph.input_ports.push_back(
          fixed_port(fmt::format("{}#{}", graph.value(id).name, id), arrived.dtype(), arrived.shape()));
      if (late().planned_for_value[i])
        graph.replace_uses(id, graph.add_constant(graph.value(id).name, arrived.clone()));
    }
    return make_runner(Model(std::make_shared<ModelImpl>(std::move(graph), model().impl())), plan().late_options,
                       share_);
  }

  // Its data may be on the device only.
  const Tensor& shape_of(ValueId id) const {
    const auto output = early_output(id);
    return output && made_[at(id)].empty() ? early_->computed(*output) : made_[at(id)];
  }

  // Index of the first part's output; none: computed by a host node.
  std::optional<std::size_t> early_output(ValueId id) const {
    const auto found = std::ranges::find(late().early_outputs, id);
    if (found == late().early_outputs.end()) return std::nullopt;
    return static_cast<std::size_t>(found - late().early_outputs.begin());
  }

  void observe(RunnerImpl& part, std::size_t first_step) {
    if (!observer_) return part.set_observer({});
    part.set_observer([this, first_step](const LayerEvent& event) {
      LayerEvent shifted = event;
      shifted.step += static_cast<int>(first_step);
      observer_(shifted);
    });
  }

  std::shared_ptr<RunnerImpl> early_;
  RunnerShare share_;
  PlanInfo info_;
  std::vector<Tensor> made_;  // by value: this run's values on the host
  std::vector<Tensor> outputs_;
  KeptRunners kept_{most_kept};  // the rest, keyed by shapes and by the values that decide shapes
  ThreadPool host_{1};
  Observer observer_;
};

}  // namespace

std::shared_ptr<RunnerImpl> make_staged_runner(Model model, std::shared_ptr<const Plan> plan,
                                               std::shared_ptr<RunnerImpl> early, RunnerShare share) {
  return std::make_shared<StagedRunner>(std::move(model), std::move(plan), std::move(early), std::move(share));
}

}  // namespace lenslet
