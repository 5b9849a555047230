#include "lenslet/runner.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "runtime/base/thread_pool.h"
#include "runtime/exec/plan.h"
#include "runtime/graph/memory_plan.h"

namespace lenslet {

namespace {

struct ArenaDelete {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{arena_alignment}); }
};
using Arena = std::unique_ptr<std::byte, ArenaDelete>;

Arena allocate_arena(std::size_t bytes) {
  // At least one line: offsets of empty tensors are valid pointers.
  const std::size_t size = bytes < arena_alignment ? arena_alignment : bytes;
  void* const memory = ::operator new (size, std::align_val_t{arena_alignment}, std::nothrow);
  if (memory == nullptr) throw Error(ErrorKind::limit, fmt::format("no memory for an arena of {} bytes", size));
  return Arena(static_cast<std::byte*>(memory));
}

// A step with every pointer resolved.
struct BoundStep {
  const Op* op = nullptr;
  const PlanStep* plan = nullptr;
  std::vector<Tensor> inputs, outputs;
  std::span<std::byte> workspace;
};

}  // namespace

class RunnerImpl {
 public:
  RunnerImpl(const Model& model, const PlanOptions& options)
      : model_(model),
        plan_(make_plan(*model.impl(), options)),
        pool_(plan_->info.threads),
        arena_(allocate_arena(plan_->arena_bytes)) {
    for (const PlanStep& step : plan_->steps) {
      const Node& node = plan_->graph.node(step.node);
      BoundStep bound;
      bound.op = node.op.get();
      bound.plan = &step;
      for (const ValueId input : node.inputs) bound.inputs.push_back(input == no_id ? Tensor() : bind(input));
      for (const ValueId output : node.outputs) bound.outputs.push_back(bind(output));
      bound.workspace = {arena_.get() + step.workspace_offset, step.workspace_bytes};
      steps_.push_back(std::move(bound));
    }
    for (const ValueId input : plan_->graph.inputs) inputs_.push_back(bind(input));
    for (const ValueId output : plan_->graph.outputs) outputs_.push_back(bind(output));
  }

  std::span<const Tensor> run(std::span<const Tensor> inputs) {
    check_inputs(inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].bytes() > 0) std::memcpy(inputs_[i].data(), inputs[i].data(), inputs[i].bytes());
    if (observer_)
      run_observed();
    else
      for (BoundStep& step : steps_) run_step(step);
    return outputs_;
  }

  const PlanInfo& info() const { return plan_->info; }
  void set_observer(Observer observer) { observer_ = std::move(observer); }

 private:
  Tensor bind(ValueId id) {
    const Value& value = plan_->graph.value(id);
    const auto v = static_cast<std::size_t>(id);
    // Renamed bytes of a constant keep its storage; only shape and layout differ.
    if (const Tensor* constant = plan_->constants[v])
      return Tensor::share(value.dtype, value.shape, nullptr, constant->data(), value.layout);
    return Tensor::view(value.dtype, value.shape, arena_.get() + plan_->offsets[v], value.layout);
  }

  void check_inputs(std::span<const Tensor> inputs) const {
    if (inputs.size() != inputs_.size())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{} inputs given, the model takes {}", inputs.size(), inputs_.size()), model_.name());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& given = inputs[i];
      const Tensor& wanted = inputs_[i];
      const std::string& name = plan_->info.inputs[i].first;
      if (given.empty() || given.dtype() != wanted.dtype() || !(given.shape() == wanted.shape()))
        throw Error(
            ErrorKind::invalid_argument,
            fmt::format("input '{}' is {}{}, planned was {}{}", name,
                        given.empty() ? "missing" : to_string(given.dtype()), given.empty() ? "" : given.shape().str(),
                        to_string(wanted.dtype()), wanted.shape().str()),
            model_.name());
      if (given.layout() != Layout::nchw && !same_bytes_in_any_layout(given.shape()))
        throw Error(ErrorKind::invalid_argument, fmt::format("input '{}' is not in layout nchw", name), model_.name());
      if (const Tensor& fixed = plan_->input_values[i];
          fixed.bytes() > 0 && std::memcmp(given.data(), fixed.data(), fixed.bytes()) != 0)
        throw Error(ErrorKind::invalid_argument,
                    fmt::format("input '{}' has another value than the one it was planned for", name), model_.name());
    }
  }

  void run_step(BoundStep& step) {
    if (!step.plan->runs) return;
    try {
      step.op->run_cpu({step.inputs, step.outputs, step.workspace, step.plan->prepared.get(), pool_});
    } catch (const Error& error) {
      throw error.within(model_.name() + ": " + plan_->graph.node(step.plan->node).label());
    }
  }

  void run_observed() {
    using Clock = std::chrono::steady_clock;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const auto begin = Clock::now();
      run_step(steps_[i]);
      const std::chrono::duration<double, std::milli> elapsed = Clock::now() - begin;
      LayerEvent event;
      event.step = static_cast<int>(i);
      event.info = &plan_->info.steps[i];
      event.inputs = steps_[i].inputs;
      event.outputs = steps_[i].outputs;
      event.ms = elapsed.count();
      observer_(event);
    }
  }

  Model model_;  // keeps the constants alive
  std::shared_ptr<const Plan> plan_;
  ThreadPool pool_;
  Arena arena_;
  std::vector<BoundStep> steps_;
  std::vector<Tensor> inputs_, outputs_;
  Observer observer_;
};

Runner::Runner(const Model& model, const PlanOptions& options) : impl_(std::make_unique<RunnerImpl>(model, options)) {}
Runner::~Runner() = default;
Runner::Runner(Runner&&) noexcept = default;
Runner& Runner::operator=(Runner&&) noexcept = default;

std::span<const Tensor> Runner::run(std::span<const Tensor> inputs) { return impl_->run(inputs); }
const PlanInfo& Runner::plan() const { return impl_->info(); }
void Runner::set_observer(Observer observer) { impl_->set_observer(std::move(observer)); }

}  // namespace lenslet
