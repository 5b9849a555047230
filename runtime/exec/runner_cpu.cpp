// Runs a plan on the CPU: pointers are resolved at construction, a run walks the steps.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/app_memory.h"
#include "base/float_environment.h"
#include "base/tensor_bytes.h"
#include "base/thread_pool.h"
#include "base/time_stamps.h"
#include "ops/core/grain.h"
#include "runtime/exec/constant_outputs.h"
#include "runtime/exec/movable_ports.h"
#include "runtime/exec/runner_impl.h"
#include "runtime/graph/memory_plan.h"

namespace lenslet {

namespace {

// A step with every pointer resolved.
struct BoundStep {
  const PlanStep* plan = nullptr;
  std::vector<Tensor> inputs, outputs;
  std::span<std::byte> workspace;
};

Tensor arena_of(const Plan& plan) {
  // At least one line: offsets of empty tensors are valid pointers.
  const std::size_t bytes = std::max(plan.arena_bytes, arena_alignment);
  if (plan.allocator == nullptr) return tensor_of_bytes(bytes);
  std::shared_ptr<std::byte> memory = app_memory(plan.allocator, bytes, arena_alignment, false);
  const void* const data = memory.get();
  return Tensor::share(DType::u8, {static_cast<std::int64_t>(bytes)}, std::move(memory), data);
}

class CpuRunner final : public RunnerImpl {
 public:
  CpuRunner(Model model, std::shared_ptr<const Plan> plan_made, RunnerShare& share)
      : RunnerImpl(std::move(model), std::move(plan_made)), pool_(share.pool), arena_(arena_of(plan())) {
    for (const PlanStep& step : plan().steps) {
      const Node& node = plan().graph.node(step.node);
      BoundStep bound;
      bound.plan = &step;
      for (const ValueId input : node.inputs) bound.inputs.push_back(input == no_id ? Tensor() : bind(input));
      for (const ValueId output : node.outputs) bound.outputs.push_back(bind(output));
      bound.workspace = bytes_of(arena_).subspan(step.workspace_offset, step.workspace_bytes);
      steps_.push_back(std::move(bound));
    }
    for (BoundStep& step : steps_)
      calls_.push_back({.inputs = step.inputs,
                        .outputs = step.outputs,
                        .workspace = step.workspace,
                        .blob = static_cast<const std::byte*>(step.plan->blob.get()),
                        .pool = pool_.get()});
    for (const ValueId input : plan().graph.inputs) inputs_.push_back(bind(input));
    for (const ValueId output : plan().graph.outputs) {
      const bool is_constant = plan().constants[static_cast<std::size_t>(output)] != nullptr;
      outputs_.push_back(is_constant ? constant_outputs_.add(plan(), output) : bind(output));
    }
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      input_ports_.emplace_back(inputs_[i], tensors_at(plan().graph.inputs[i], input_may_move(plan(), i)));
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      output_ports_.emplace_back(outputs_[i], tensors_at(plan().graph.outputs[i], output_may_move(plan(), i)));
  }

  void set_observer(Observer observer) override { observer_ = std::move(observer); }
  std::vector<double> time_device(int) override { return {}; }

 private:
  void write_input(std::size_t input, const Tensor& value) override {
    // Copied in parallel: this wakes the threads before the first step and brings each one's part of the input into its
    // cache.
    pool_->start_in_this_process();
    const std::span<std::byte> to = bytes_of(inputs_[input]);
    const auto* const from = static_cast<const std::byte*>(value.data());
    pool_->parallel_for(static_cast<std::int64_t>(value.bytes()), copy_grain_bytes,
                        [&](std::int64_t begin, std::int64_t end, int) {
                          std::memcpy(to.data() + begin, from + begin, static_cast<std::size_t>(end - begin));
                        });
  }

  bool place_input(std::size_t input, const IoTensor* given) override {
    return input_ports_[input].move(given == nullptr ? nullptr : address_of(given->tensor));
  }

  bool place_output(std::size_t output, const IoTensor* given) override {
    MovablePort& port = output_ports_[output];
    if (port.move(given == nullptr ? nullptr : address_of(given->tensor))) return true;
    port.move(nullptr);
    return false;
  }

  void wait_for(void*) override {
    throw Error(ErrorKind::invalid_argument, "a CUDA stream or memory of a CUDA device for a Runner on the CPU",
                model().name());
  }

  void write_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index) override {
    to_input(image, spec, inputs_[input], index);
  }

  void write_blank(std::size_t input, std::int64_t index) override {
    Tensor& batch = inputs_[input];
    const std::size_t bytes = batch.bytes() / static_cast<std::size_t>(batch.shape()[0]);
    std::memset(static_cast<std::byte*>(batch.data()) + static_cast<std::size_t>(index) * bytes, 0, bytes);
  }

  std::span<const Tensor> run_steps() override {
    pool_->start_in_this_process();
    if (observer_) {
      run_observed();
    } else {
      const FloatEnvironment environment(plan().flush_denormals);
      for (std::size_t i = 0; i < steps_.size(); i = next_after(i)) {
        end_if_cancelled(i);
        run_steps_from(i);
      }
    }
    TimeStamps::enter_step(-1);
    constant_outputs_.write();
    return outputs_;
  }

  const Tensor& computed(std::size_t output) const override { return outputs_[output]; }

  std::span<const std::byte> own_memory() const override {
    return {static_cast<const std::byte*>(arena_.data()), plan().arena_bytes};
  }

  Tensor bind(ValueId id) {
    const Value& value = plan().graph.value(id);
    const auto v = static_cast<std::size_t>(id);
    // Aliases of a constant share its storage; only shape and format differ.
    if (const Tensor* constant = plan().constants[v])
      return Tensor::share(value.dtype, value.shape, nullptr, constant->data(), value.format);
    return Tensor::view(value.dtype, value.shape, bytes_of(arena_).data() + plan().offsets[v], value.format);
  }

  // An empty view may have a null address, which must compare like any other.
  void* address_of(const Tensor& given) {
    return given.data() == nullptr ? arena_.data() : const_cast<void*>(given.data());
  }

  // The steps' tensors in the memory of `id`; none if it may not move.
  std::vector<Tensor*> tensors_at(ValueId id, bool may_move) {
    std::vector<Tensor*> found;
    if (!may_move) return found;
    const std::vector<ValueId>& roots = plan().roots;
    const auto add = [&](const std::vector<ValueId>& ids, std::vector<Tensor>& tensors) {
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (ids[i] != no_id && roots[static_cast<std::size_t>(ids[i])] == roots[static_cast<std::size_t>(id)])
          found.push_back(&tensors[i]);
    };
    for (BoundStep& step : steps_) {
      const Node& node = plan().graph.node(step.plan->node);
      add(node.inputs, step.inputs);
      add(node.outputs, step.outputs);
    }
    return found;
  }

  /// The step after step `i` and its band.
  std::size_t next_after(std::size_t i) const {
    const PlanStep& plan = *steps_[i].plan;
    return plan.band == nullptr ? i + 1 : static_cast<std::size_t>(plan.band_last) + 1;
  }

  void run_steps_from(std::size_t i) {
    if (steps_[i].plan->band == nullptr) return run_step(i);
    TimeStamps::enter_step(static_cast<int>(i));
    const std::span<const KernelRun> calls = std::span(calls_).subspan(i, next_after(i) - i);
    steps_[i].plan->band->run(calls, steps_[i].workspace, *pool_);
  }

  void run_step(std::size_t i) {
    const BoundStep& step = steps_[i];
    if (!step.plan->runs) return;
    TimeStamps::enter_step(static_cast<int>(i));
    try {
      step.plan->kernel->run(calls_[i]);
    } catch (const Error& error) {
      throw error.within(model().name() + ": " + plan().graph.node(step.plan->node).label());
    }
  }

  void run_observed() {
    using Clock = std::chrono::steady_clock;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      end_if_cancelled(i);
      const auto begin = Clock::now();
      {
        const FloatEnvironment environment(plan().flush_denormals);
        run_step(i);
      }
      const std::chrono::duration<double, std::milli> elapsed = Clock::now() - begin;
      LayerEvent event;
      event.step = static_cast<int>(i);
      event.info = &plan().info.steps[i];
      event.inputs = steps_[i].inputs;
      event.outputs = steps_[i].outputs;
      event.ms = elapsed.count();
      observer_(event);
    }
  }

  std::shared_ptr<ThreadPool> pool_;
  Tensor arena_;
  std::vector<BoundStep> steps_;
  std::vector<KernelRun> calls_;  // of the steps, one each
  std::vector<Tensor> inputs_;    // in the arena
  std::vector<Tensor> outputs_;  // in the arena or constants; used for outputs that are not in the application's memory
  std::vector<MovablePort> input_ports_, output_ports_;
  ConstantOutputs constant_outputs_;
  Observer observer_;
};

}  // namespace

std::shared_ptr<RunnerImpl> make_cpu_runner(Model model, std::shared_ptr<const Plan> plan, RunnerShare& share) {
  return std::make_shared<CpuRunner>(std::move(model), std::move(plan), share);
}

}  // namespace lenslet
