// Runs on the application's memory: checks, in-place use, and copies where that is not possible.
#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "base/format.h"
#include "runtime/exec/runner_impl.h"

namespace lenslet {

namespace {

// As addresses: comparing pointers into different objects says nothing in C++.
bool overlap(const Tensor& a, const Tensor& b) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data()), second = reinterpret_cast<std::uintptr_t>(b.data());
  return first < second + b.bytes() && second < first + a.bytes();
}

bool overlaps_any(const Tensor& tensor, std::span<const IoTensor> others) {
  for (const IoTensor& other : others)
    if (overlap(tensor, other.tensor)) return true;
  return false;
}

bool any_on_cuda(std::span<const IoTensor> tensors) {
  for (const IoTensor& tensor : tensors)
    if (tensor.on_cuda) return true;
  return false;
}

}  // namespace

void RunnerImpl::check_outputs(std::span<const IoTensor> outputs) const {
  if (outputs.empty()) return;
  const auto& ports = plan_->info.outputs;
  if (outputs.size() != ports.size())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} outputs given, the model has {}", outputs.size(), ports.size()), model_.name());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& given = outputs[i].tensor;
    if (given.empty()) continue;
    if (!same_bytes(formats::nchw, given.format(), given.shape()))
      throw Error(ErrorKind::invalid_argument, fmt::format("output '{}' is not in format nchw", ports[i].first),
                  model_.name());
    if (overlaps_any(given, outputs.first(i)))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("output '{}' shares memory with one before it", ports[i].first), model_.name());
    // Computed shapes are known only after the run.
    if (plan_->late == nullptr) {
      const Value& made = plan_->graph.value(plan_->graph.outputs[i]);
      check_output(i, given, made.dtype, made.shape);
    }
  }
}

void RunnerImpl::check_output(std::size_t output, const Tensor& given, DType dtype, const Shape& shape) const {
  if (given.dtype() == dtype && given.shape() == shape) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("output '{}' is wanted as {}{} and comes as {}{}", plan_->info.outputs[output].first,
                          to_string(given.dtype()), given.shape().str(), to_string(dtype), shape.str()),
              model_.name());
}

void RunnerImpl::place_at_home() {
  if (!away_) return;
  for (std::size_t i = 0; i < loaded_.size(); ++i) place_input(i, nullptr);
  for (std::size_t i = 0; i < plan_->info.outputs.size(); ++i) place_output(i, nullptr);
  away_ = false;
}

// Copies to the input's memory; inputs in own_memory() have been copied aside before.
void RunnerImpl::give(std::size_t input, const IoTensor& given, std::span<const IoTensor> outputs) {
  const bool own = !given.on_cuda && is_own(given.tensor);
  const bool written_over = !given.on_cuda && overlaps_any(given.tensor, outputs);
  if (!own && !written_over && place_input(input, &given)) return;
  place_input(input, nullptr);
  if (given.on_cuda)
    take_over(input, given.tensor);
  else
    write_input(input, own ? apart_[input] : given.tensor);
}

template <typename Prepare>
std::span<const Tensor> RunnerImpl::run_on_app_memory(const RunOptions& options, bool on_cuda, const Prepare& prepare) {
  const std::span<const IoTensor> outputs = options.outputs;
  if (on_cuda || options.cuda_stream != nullptr) wait_for(options.cuda_stream);
  stop_ = options.stop;
  away_ = true;
  try {
    end_if_cancelled(0);
    prepare();
    placed_.assign(plan_->info.outputs.size(), false);
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      const bool wanted = i < outputs.size() && !outputs[i].tensor.empty();
      placed_[i] = place_output(i, wanted ? &outputs[i] : nullptr) && wanted;
    }
    const std::span<const Tensor> computed = run_steps();
    given_back_.assign(computed.begin(), computed.end());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].tensor.empty()) continue;
      if (!placed_[i]) {
        check_output(i, outputs[i].tensor, computed[i].dtype(), computed[i].shape());
        copy_output(computed[i], outputs[i]);
      }
      given_back_[i] = outputs[i].on_cuda ? Tensor() : outputs[i].tensor;
    }
  } catch (...) {
    let_go();
    stop_ = {};
    throw;
  }
  stop_ = {};
  return given_back_;
}

std::span<const Tensor> RunnerImpl::run(std::span<const IoTensor> inputs, const RunOptions& options) {
  check_count(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) check_input(i, inputs[i].tensor, inputs[i].on_cuda);
  check_outputs(options.outputs);
  return run_on_app_memory(options, any_on_cuda(inputs) || any_on_cuda(options.outputs), [&] {
    for (std::vector<bool>& images : loaded_) images.clear();
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (!inputs[i].on_cuda && !is_unread(i)) set_apart(i, inputs[i].tensor);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (!is_unread(i)) give(i, inputs[i], options.outputs);
  });
}

std::span<const Tensor> RunnerImpl::run_loaded(const RunOptions& options) {
  check_loaded();
  check_outputs(options.outputs);
  return run_on_app_memory(options, any_on_cuda(options.outputs), [&] {
    for (std::size_t i = 0; i < loaded_.size(); ++i) place_input(i, nullptr);
    write_missing();
  });
}

void RunnerImpl::copy_output(const Tensor& computed, const IoTensor& wanted) {
  Tensor to = wanted.tensor;
  if (to.bytes() > 0) std::memcpy(to.data(), computed.data(), to.bytes());
}

void RunnerImpl::throw_cancelled(std::size_t done) const {
  throw Error(ErrorKind::cancelled,
              fmt::format("the run was cancelled after {} of {} steps", done, plan_->steps.size()));
}

}  // namespace lenslet
