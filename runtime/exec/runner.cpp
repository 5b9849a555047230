#include "lenslet/runner.h"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/boundary.h"
#include "base/cuda_built.h"
#include "base/fork.h"
#include "base/format.h"
#include "runtime/exec/check_range.h"
#include "runtime/exec/runner_impl.h"

namespace lenslet {

namespace {

std::shared_ptr<RunnerImpl> make_runner(const Model& model, const std::shared_ptr<const Plan>& plan,
                                        RunnerShare& share) {
  if constexpr (cuda_built)
    if (plan->device.is_cuda()) return cuda::make_runner(model, plan, share);
  return make_cpu_runner(model, plan, share);
}

const std::shared_ptr<RunnerImpl>& held_by(const std::shared_ptr<RunnerImpl>& runner) {
  if (!runner) throw Error(ErrorKind::invalid_argument, "this Runner holds nothing: it was moved from");
  return runner;
}

// Wraps every call on a Runner: takes its turn, and keeps the implementation alive if an observer destroys the Runner.
template <typename Work>
auto use(const std::shared_ptr<RunnerImpl>& runner, const Work& work) {
  return at_boundary([&] {
    const std::shared_ptr<RunnerImpl> held = held_by(runner);
    const RunnerImpl::Turn turn(*held);
    if constexpr (std::is_void_v<decltype(work(*held))>) {
      work(*held);
    } else {
      auto result = work(*held);
      if (held.use_count() == 1)
        throw Error(ErrorKind::invalid_argument, "the Runner was destroyed by its own observer");
      return result;
    }
  });
}

}  // namespace

std::shared_ptr<RunnerImpl> make_runner(const Model& model, const PlanOptions& options, RunnerShare& share) {
  std::shared_ptr<const Plan> plan = make_plan(*model.impl(), options, share.pool);
  check_calibration(model, options, *plan);
  std::shared_ptr<RunnerImpl> runner;
  try {
    runner = make_runner(model, plan, share);
  } catch (const Error&) {
    // A cuBLAS that cannot be initialised is known by then and treated as absent.
    bool without_cublas = false;
    if constexpr (cuda_built)
      without_cublas = plan->needs_cublas && !cuda::device_profile(plan->device.cuda_index).cublas_reason.empty();
    if (!without_cublas) throw;
    plan = make_plan(*model.impl(), options, share.pool);
    runner = make_runner(model, plan, share);
  }
  return plan->late == nullptr ? runner : make_staged_runner(model, plan, runner, share);
}

void RunnerImpl::check_inputs(std::span<const Tensor> inputs) const {
  check_count(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) check_input(i, inputs[i]);
}

// Unread inputs may be missing at the end.
void RunnerImpl::check_count(std::size_t inputs) const {
  bool enough = inputs <= plan_->graph.inputs.size();
  for (std::size_t i = inputs; i < plan_->graph.inputs.size(); ++i) enough = enough && is_unread(i);
  if (!enough)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} inputs given, the model takes {}", inputs, plan_->graph.inputs.size()), model_.name());
}

void RunnerImpl::check_input(std::size_t input, const Tensor& given, bool on_cuda) const {
  if (is_unread(input)) return;
  const Value& wanted = plan_->graph.value(plan_->graph.inputs[input]);
  const std::string& name = plan_->info.inputs[input].first;
  if (given.empty() || given.dtype() != wanted.dtype || !(given.shape() == wanted.shape))
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("input '{}' is {}{}, planned was {}{}", name, given.empty() ? "missing" : to_string(given.dtype()),
                    given.empty() ? "" : given.shape().str(), to_string(wanted.dtype), wanted.shape.str()),
        model_.name());
  if (given.format() != formats::nchw && !same_bytes(formats::nchw, given.format(), given.shape()))
    throw Error(ErrorKind::invalid_argument, fmt::format("input '{}' is not in format nchw", name), model_.name());
  const Tensor& fixed = plan_->input_values[input];
  if (fixed.bytes() == 0) return;
  if (on_cuda)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("input '{}' was planned for one value, which is compared on the host", name),
                model_.name());
  if (std::memcmp(given.data(), fixed.data(), fixed.bytes()) != 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("input '{}' has another value than the one it was planned for", name), model_.name());
}

RunnerImpl::~RunnerImpl() {
  plan_.reset();
  model_.impl()->prepared->trim();
}

RunnerImpl::Turn::Turn(RunnerImpl& runner) : runner_(runner) {
  const unsigned mine = 1 + fork_count();
  unsigned other = runner.turn_.load(std::memory_order_relaxed);
  if (other == mine || !runner.turn_.compare_exchange_strong(other, mine, std::memory_order_acquire))
    throw Error(ErrorKind::invalid_argument,
                "the Runner is at work: another thread is in it, or this call comes from its observer",
                runner.model_.name());
}

// As an address: comparing pointers into different objects says nothing in C++.
bool RunnerImpl::is_own(const Tensor& given) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(own_memory().data());
  const auto at = reinterpret_cast<std::uintptr_t>(given.data());
  return at < begin + own_memory().size() && begin < at + given.bytes();
}

// Copies all of them before writing any input, which may change them.
void RunnerImpl::set_apart(std::size_t input, const Tensor& given) {
  if (!is_own(given)) return;
  apart_.resize(loaded_.size());
  if (apart_[input].empty()) apart_[input] = Tensor(given.dtype(), given.shape(), given.format());
  std::memcpy(apart_[input].data(), given.data(), given.bytes());
}

std::span<const Tensor> RunnerImpl::run(std::span<const Tensor> inputs) {
  check_inputs(inputs);
  place_at_home();
  for (std::vector<bool>& images : loaded_) images.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!is_unread(i)) set_apart(i, inputs[i]);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!is_unread(i)) write_input(i, is_own(inputs[i]) ? apart_[i] : inputs[i]);
  return run_steps();
}

void RunnerImpl::load_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index) {
  if (input >= loaded_.size())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("there is no input {}, the model takes {}", input, loaded_.size()), model_.name());
  if (!plan_->input_values[input].empty())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("input '{}' was planned for one value, an image cannot be loaded into it",
                            plan_->info.inputs[input].first),
                model_.name());
  place_at_home();
  write_image(input, image, spec, index);
  std::vector<bool>& images = loaded_[input];
  images.resize(static_cast<std::size_t>(plan_->info.inputs[input].second[0]));
  images[static_cast<std::size_t>(index)] = true;
}

std::span<const Tensor> RunnerImpl::run_loaded() {
  check_loaded();
  place_at_home();
  write_missing();
  return run_steps();
}

void RunnerImpl::check_loaded() const {
  for (std::size_t i = 0; i < loaded_.size(); ++i)
    if (loaded_[i].empty() && plan_->input_values[i].empty() && !is_unread(i))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("no image was loaded into input '{}' since the last run", plan_->info.inputs[i].first),
                  model_.name());
}

void RunnerImpl::write_missing() {
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    std::vector<bool>& images = loaded_[i];
    for (std::size_t n = 0; n < images.size(); ++n)
      if (!images[n]) write_blank(i, static_cast<std::int64_t>(n));
    images.clear();
    if (const Tensor& fixed = plan_->input_values[i]; !fixed.empty() && !is_unread(i)) write_input(i, fixed);
  }
}

Runner::Runner(const Model& model, const PlanOptions& options)
    : impl_(at_boundary([&] {
        RunnerShare share;
        std::shared_ptr<RunnerImpl> runner = make_runner(model, options, share);
        return options.other_shapes == 0 ? runner : make_shapes_runner(model, options, runner, share);
      })) {}
Runner::~Runner() = default;
Runner::Runner(Runner&&) noexcept = default;
Runner& Runner::operator=(Runner&&) noexcept = default;

std::span<const Tensor> Runner::run(std::span<const IoTensor> inputs, const RunOptions& options) {
  return use(impl_, [&](RunnerImpl& runner) { return runner.run(inputs, options); });
}

std::span<const Tensor> Runner::run_loaded(const RunOptions& options) {
  return use(impl_, [&](RunnerImpl& runner) { return runner.run_loaded(options); });
}

std::span<const Tensor> Runner::run(std::span<const Tensor> inputs) {
  return use(impl_, [&](RunnerImpl& runner) { return runner.run(inputs); });
}

void Runner::load_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index) {
  use(impl_, [&](RunnerImpl& runner) { runner.load_image(input, image, spec, index); });
}

std::span<const Tensor> Runner::run_loaded() {
  return use(impl_, [](RunnerImpl& runner) { return runner.run_loaded(); });
}

const PlanInfo& Runner::plan() const { return held_by(impl_)->info(); }

void Runner::set_observer(Observer observer) {
  use(impl_, [&](RunnerImpl& runner) { runner.set_observer(std::move(observer)); });
}

std::vector<double> Runner::time_device(int repeats) {
  return use(impl_, [&](RunnerImpl& runner) {
    if (repeats < 1)
      throw Error(ErrorKind::invalid_argument, fmt::format("{} repeats of a measurement; at least 1", repeats));
    return runner.time_device(repeats);
  });
}

Timeline Runner::timeline(std::span<const Tensor> inputs, int runs) {
  return use(impl_, [&](RunnerImpl& runner) {
    if (runs < 1) throw Error(ErrorKind::invalid_argument, fmt::format("{} runs of a timeline; at least 1", runs));
    return runner.timeline(inputs, runs);
  });
}

}  // namespace lenslet
