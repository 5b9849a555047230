#include "runtime/exec/cuda/network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/app_memory.h"
#include "base/cuda/prefetch.h"
#include "base/cuda/time_stamp.h"
#include "ops/core/fault.h"
#include "runtime/exec/cuda/observation.h"
#include "runtime/exec/place.h"
#include "runtime/exec/runner_impl.h"

namespace lenslet::cuda {

namespace {

std::size_t round_up(std::size_t bytes) {
  return (bytes + cuda_arena_alignment - 1) / cuda_arena_alignment * cuda_arena_alignment;
}

// Memory for graph inputs and outputs, each aligned. Constant outputs need none.
std::size_t staging_bytes(const Plan& plan) {
  std::size_t bytes = cuda_arena_alignment;
  for (const ValueId id : plan.graph.inputs) bytes += round_up(plan.graph.value(id).bytes());
  for (const ValueId id : plan.graph.outputs) bytes += round_up(plan.graph.value(id).bytes());
  return bytes;
}

// A run of at least this is waited for asleep.
constexpr double long_run_us = 1000;

constexpr auto no_port = static_cast<std::size_t>(-1);

std::size_t arena_bytes(const Plan& plan) {
  // At least one line: offsets of empty tensors are valid addresses.
  return std::max(plan.arena_bytes, cuda_arena_alignment);
}

std::shared_ptr<std::byte> arena_of(const Plan& plan) {
  if (plan.allocator != nullptr) return app_memory(plan.allocator, arena_bytes(plan), cuda_arena_alignment, true);
  const auto own = std::make_shared<DeviceBuffer<std::byte>>(arena_bytes(plan));
  return {own, own->data()};
}

cudaMemoryType type_of(const void* memory) {
  cudaPointerAttributes found{};
  CUDA_CHECK(cudaPointerGetAttributes(&found, memory));
  return found.type;
}

// Error(invalid_argument) unless it is.
void check_on_cuda(const void* memory) {
  const cudaMemoryType type = type_of(memory);
  if (type != cudaMemoryTypeDevice && type != cudaMemoryTypeManaged)
    throw Error(ErrorKind::invalid_argument, "the address is marked as CUDA memory but is not on a CUDA device");
}

// Whether the device can copy the memory directly: pinned or device memory. Error(invalid_argument) if `on_cuda` memory
// is not device memory.
bool copies_at_once(const IoTensor& tensor) {
  if (tensor.tensor.bytes() == 0) return true;
  if (!tensor.on_cuda) return type_of(tensor.tensor.data()) == cudaMemoryTypeHost;
  check_on_cuda(tensor.tensor.data());
  return true;
}

void copy(Tensor& to, const Tensor& from, cudaMemcpyKind direction, const Stream& stream) {
  if (from.bytes() > 0) CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), from.bytes(), direction, stream.get()));
}

}  // namespace

Network::Network(const Plan& plan, std::shared_ptr<Session> session)
    : plan_(plan),
      session_(std::move(session)),
      arena_(arena_of(plan)),
      faults_(plan.steps.size() * fault_words),
      staging_(staging_bytes(plan)) {
  clear_faults();
  bind_steps();
  bind_ports();
  // Uninitialised memory could hold invalid indices.
  CUDA_CHECK(cudaMemsetAsync(arena_.get(), 0, arena_bytes(plan), session_->stream().get()));
  if (plan_.sync_each_step)
    launch_each_and_wait({});
  else if (plan_.needs_cublas)
    launch_all();
  wait();
  clear_faults();  // found in the run on zeros
  double estimated_us = 0;
  for (const StepInfo& step : plan_.info.steps) estimated_us += step.estimated_us;
  if (estimated_us >= long_run_us) done_.emplace(cudaEventBlockingSync | cudaEventDisableTiming);
  const bool any = std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.plan->runs; });
  if (any) recorded_.emplace(record({}));
}

Network::~Network() {
  // The application's allocator does not wait for the device, unlike cudaFree.
  if (plan_.allocator != nullptr) let_go();
}

Tensor Network::bind(ValueId id) {
  const Value& value = plan_.graph.value(id);
  const auto v = static_cast<std::size_t>(id);
  if (plan_.constants[v] != nullptr) {
    const void* const address = plan_.device_constants[v].get();
    if (address == nullptr && value.bytes() > 0) return {};  // no step reads it there
    return Tensor::share(value.dtype, value.shape, nullptr, address, value.format);
  }
  return Tensor::view(value.dtype, value.shape, arena_.get() + plan_.offsets[v], value.format);
}

void Network::bind_steps() {
  for (const PlanStep& planned : plan_.steps) {
    Step step;
    step.plan = &planned;
    step.node = &plan_.graph.node(planned.node);
    for (const ValueId id : step.node->inputs) {
      step.inputs.push_back(id == no_id ? Tensor() : bind(id));
    }
    for (const ValueId id : step.node->outputs) step.outputs.push_back(bind(id));
    step.workspace = {arena_.get() + planned.workspace_offset, planned.workspace_bytes};
    steps_.push_back(std::move(step));
  }
}

void Network::bind_ports() {
  std::byte* next = staging_.data();
  const auto pinned = [&](ValueId id) {
    const Value& value = plan_.graph.value(id);
    std::byte* const data = std::exchange(next, next + round_up(value.bytes()));
    return Tensor::view(value.dtype, value.shape, data, value.format);
  };
  for (const ValueId id : plan_.graph.inputs) inputs_.push_back({bind(id), pinned(id)});
  for (std::size_t i = 0; i < plan_.graph.outputs.size(); ++i) {
    const ValueId id = plan_.graph.outputs[i];
    output_ports_.push_back(no_port);
    if (plan_.constants[static_cast<std::size_t>(id)] != nullptr) {
      host_outputs_.push_back(constant_outputs_.add(plan_, id));
      computed_.push_back(host_outputs_.back());
      continue;
    }
    computed_.push_back(bind(id));
    if (i < plan_.stays_on_device.size() && plan_.stays_on_device[i]) {
      host_outputs_.emplace_back();
      continue;
    }
    output_ports_.back() = outputs_.size();
    outputs_.push_back({computed_.back(), pinned(id)});
    host_outputs_.push_back(outputs_.back().host);
  }
}

void Network::launch(Step& step, const Context& shared) {
  try {
    Context context = shared;
    context.fault =
        step.plan->kernel->fault().empty() ? nullptr : fault(static_cast<std::size_t>(&step - steps_.data()));
    step.plan->kernel->run({.inputs = step.inputs,
                            .outputs = step.outputs,
                            .workspace = step.workspace,
                            .blob = static_cast<const std::byte*>(step.plan->blob.get()),
                            .cuda = &context});
  } catch (const Error& error) {
    throw error.within(step.node->label());
  }
}

std::int32_t* Network::fault(std::size_t step) { return faults_.data() + step * fault_words; }

void Network::clear_faults() { std::fill_n(faults_.data(), faults_.size(), 0); }

void Network::check_faults() {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (*fault(i) == 0) continue;
    const std::string why = fault_of(*steps_[i].plan->kernel, FaultWords(fault(i), fault_words));
    clear_faults();
    throw Error(ErrorKind::invalid_argument, why, steps_[i].node->label());
  }
}

GraphExec Network::record(std::span<const Event> boundaries, std::uint64_t* stamps) {
  GraphRecorder recorder;
  std::vector<std::size_t> nodes;  // up to the end of each step
  session_->record(recorder, [&](const Context& context) {
    if (stamps != nullptr) stamp_time(context, stamps);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (!boundaries.empty()) recorder.add(boundaries[i]);
      if (steps_[i].plan->runs) launch(steps_[i], context);
      nodes.push_back(recorded_nodes(recorder));
      if (stamps != nullptr && steps_[i].plan->runs) stamp_time(context, stamps + 1 + i);
    }
    if (!boundaries.empty()) recorder.add(boundaries[steps_.size()]);
  });
  // Prefetches change no result, but would disturb the timing of other steps.
  if (boundaries.empty() && !plan_.early_weights.empty()) {
    Prefetches prefetches(recorder);
    std::uint64_t* at = stamps == nullptr ? nullptr : stamps + 1 + steps_.size();
    for (const EarlyWeights& early : plan_.early_weights) {
      if (nodes[early.behind] > 0) prefetches.add(nodes[early.behind], weights_of(early.step), early.bytes, at);
      if (at != nullptr) at += 2;
    }
  }
  return GraphExec(recorder);
}

const void* Network::weights_of(std::size_t step) const {
  const PlanStep& planned = plan_.steps[step];
  if (planned.blob != nullptr) return planned.blob.get();
  return plan_.device_constants[static_cast<std::size_t>(plan_.largest_constant(planned))].get();
}

void Network::launch_all() {
  for (Step& step : steps_)
    if (step.plan->runs) launch(step, session_->context());
}

void Network::launch_each_and_wait(const BeforeStep& before) {
  for (Step& step : steps_) {
    if (!step.plan->runs) continue;
    if (before) before(static_cast<std::size_t>(&step - steps_.data()));
    launch(step, session_->context());
    try {
      session_->stream().synchronize();
    } catch (const Error& error) {
      throw error.within(step.node->label());
    }
  }
}

void Network::wait() {
  try {
    if (done_) {
      done_->record(session_->stream());
      done_->synchronize();
    }
    session_->stream().synchronize();
  } catch (const Error& error) {
    throw Error(error.kind(), error.message() + "; PlanOptions::sync_each_step (--sync-each-step) names the node",
                error.context());
  }
}

void Network::write_input(std::size_t input, const Tensor& value) {
  Port& port = inputs_[input];
  if (value.bytes() > 0) std::memcpy(port.host.data(), value.data(), value.bytes());
  copy(port.device, port.host, cudaMemcpyHostToDevice, session_->stream());
}

void Network::take_over(std::size_t input, const Tensor& computed) {
  copy(inputs_[input].device, computed, cudaMemcpyDefault, session_->stream());
}

bool Network::take_input(std::size_t input, const IoTensor& given) {
  if (!copies_at_once(given)) return false;
  copy(inputs_[input].device, given.tensor, cudaMemcpyDefault, session_->stream());
  return true;
}

bool Network::send_output(std::size_t output, const IoTensor* wanted) {
  if (output_ports_[output] == no_port) return false;
  Port& port = outputs_[output_ports_[output]];
  port.app = nullptr;
  if (wanted == nullptr) return true;
  if (!copies_at_once(*wanted)) return false;
  port.app = const_cast<void*>(wanted->tensor.data());
  return true;
}

void Network::copy_output(const Tensor& computed, const IoTensor& wanted) {
  static_cast<void>(copies_at_once(wanted));  // throws
  Tensor to = wanted.tensor;
  copy(to, computed, cudaMemcpyDefault, session_->stream());
  wait();
}

void Network::run_behind(void* stream) {
  if (!app_work_) app_work_.emplace();
  CUDA_CHECK(cudaEventRecord(app_work_->get(), static_cast<cudaStream_t>(stream)));
  CUDA_CHECK(cudaStreamWaitEvent(session_->stream().get(), app_work_->get(), 0));
}

void Network::let_go() noexcept { CUDA_LOG(cudaStreamSynchronize(session_->stream().get())); }

void Network::write_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index) {
  if (image.on_cuda && image.pixels != nullptr) check_on_cuda(image.pixels);
  images_.queue(session_->context(), image, spec, inputs_[input].device, index);
}

void Network::write_blank(std::size_t input, std::int64_t index) {
  Tensor& batch = inputs_[input].device;
  const std::size_t bytes = batch.bytes() / static_cast<std::size_t>(batch.shape()[0]);
  CUDA_CHECK(cudaMemsetAsync(static_cast<std::byte*>(batch.data()) + static_cast<std::size_t>(index) * bytes, 0, bytes,
                             session_->stream().get()));
}

std::span<const Tensor> Network::run(const BeforeStep& before) {
  const Stream& stream = session_->stream();
  before(0);
  if (observation_ != nullptr)
    run_observed(before);
  else if (plan_.sync_each_step)
    launch_each_and_wait(before);
  else if (recorded_)
    recorded_->launch(stream);
  for (Port& output : outputs_) {
    if (output.app == nullptr)
      copy(output.host, output.device, cudaMemcpyDeviceToHost, stream);
    else if (output.device.bytes() > 0)
      CUDA_CHECK(
          cudaMemcpyAsync(output.app, output.device.data(), output.device.bytes(), cudaMemcpyDefault, stream.get()));
  }
  constant_outputs_.write();
  wait();
  check_faults();
  return host_outputs_;
}

void Network::observe(Observer observer) {
  observation_.reset();
  if (!observer) return;
  auto made = std::make_unique<Observation>(plan_, std::move(observer));
  // An event between steps keeps each kernel from starting before the previous one has ended.
  if (recorded_ && !plan_.sync_each_step) made->timed.emplace(record(made->boundaries));
  observation_ = std::move(made);
}

void Network::run_observed(const BeforeStep& before) {
  Observation& seen = *observation_;
  const Stream& stream = session_->stream();
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    copy(seen.values[static_cast<std::size_t>(plan_.graph.inputs[i])], inputs_[i].device, cudaMemcpyDeviceToHost,
         stream);
  // Times come from the whole recorded network: launched one by one, small kernels would wait for the host.
  if (seen.timed) seen.timed->launch(stream);
  wait();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    before(i);
    Step& step = steps_[i];
    LayerEvent event;
    event.step = static_cast<int>(i);
    event.info = &plan_.info.steps[i];
    event.inputs = seen.steps[i].inputs;
    event.outputs = seen.steps[i].outputs;
    if (step.plan->runs) {
      if (seen.timed) event.ms = static_cast<double>(seen.boundaries[i + 1].ms_since(seen.boundaries[i]));
      if (!seen.timed) seen.boundaries[0].record(stream);
      launch(step, session_->context());
      if (!seen.timed) seen.boundaries[1].record(stream);
      for (std::size_t o = 0; o < step.outputs.size(); ++o)
        copy(seen.steps[i].outputs[o], step.outputs[o], cudaMemcpyDeviceToHost, stream);
      try {
        stream.synchronize();
      } catch (const Error& error) {
        throw error.within(step.node->label());
      }
      if (!seen.timed) event.ms = static_cast<double>(seen.boundaries[1].ms_since(seen.boundaries[0]));
    }
    seen.observer(event);
  }
}

std::vector<double> Network::time(int repeats) {
  if (!recorded_) return std::vector<double>(static_cast<std::size_t>(repeats), 0.0);
  const Stream& stream = session_->stream();
  Event start, stop;
  const auto replay = [&](int replays) {
    start.record(stream);
    for (int i = 0; i < replays; ++i) recorded_->launch(stream);
    stop.record(stream);
    stop.synchronize();
    return static_cast<double>(stop.ms_since(start)) / replays;
  };
  // Clocks rise and caches fill during the first ones; an event's resolution is half a microsecond.
  constexpr double sample_ms = 2;
  constexpr int most_replays = 1000;
  replay(3);
  const double once = std::max(replay(3), 1e-3);
  const int replays = std::clamp(static_cast<int>(std::ceil(sample_ms / once)), 1, most_replays);
  std::vector<double> samples;
  samples.reserve(static_cast<std::size_t>(repeats));
  for (int i = 0; i < repeats; ++i) samples.push_back(replay(replays));
  check_faults();  // a fault ends the timed runs early
  return samples;
}

Timeline Network::timeline(int runs) {
  if (!recorded_) {
    Timeline none;
    none.lanes = {"stream"};
    return none;
  }
  const Stream& stream = session_->stream();
  PinnedBuffer<std::uint64_t> read(1 + steps_.size() + 2 * plan_.early_weights.size());
  DeviceBuffer<std::uint64_t> stamps(read.size());
  CUDA_CHECK(cudaMemsetAsync(stamps.data(), 0, stamps.bytes(), stream.get()));
  const GraphExec stamped = record({}, stamps.data());
  std::vector<double> undisturbed_us = time(runs);
  for (double& sample : undisturbed_us) sample *= 1e3;  // they are milliseconds
  std::vector<Timeline> taken;
  while (taken.size() < static_cast<std::size_t>(runs)) {
    recorded_->launch(stream);  // the stamped one follows another, as in time()
    stamped.launch(stream);
    CUDA_CHECK(cudaMemcpyAsync(read.data(), stamps.data(), stamps.bytes(), cudaMemcpyDeviceToHost, stream.get()));
    wait();
    taken.push_back(timeline_of({read.data(), read.size()}));
  }
  check_faults();
  return median_of(std::move(taken), std::move(undisturbed_us));
}

Timeline Network::timeline_of(std::span<const std::uint64_t> stamps) const {
  Timeline timeline;
  timeline.lanes = {"stream"};
  const auto us = [&](std::size_t i) {
    return static_cast<double>(static_cast<std::int64_t>(stamps[i] - stamps[0])) / 1e3;
  };
  double ended_us = 0;  // of the lane
  const auto add = [&](std::size_t step, double begin_us, double end_us) {
    const int lane = static_cast<int>(timeline.lanes.size()) - 1;
    begin_us = std::max(begin_us, ended_us);  // prefetches may overlap
    ended_us = std::max(begin_us, end_us);
    timeline.spans.push_back({lane, static_cast<int>(step), TimelineSpan::Kind::step, begin_us, ended_us});
    timeline.run_us = std::max(timeline.run_us, ended_us);
  };
  for (std::size_t i = 0; i < steps_.size(); ++i)
    if (steps_[i].plan->runs) add(i, ended_us, us(1 + i));
  if (plan_.early_weights.empty()) return timeline;
  timeline.lanes.emplace_back("prefetch");
  ended_us = 0;
  for (std::size_t i = 0, at = 1 + steps_.size(); i < plan_.early_weights.size(); ++i, at += 2)
    if (stamps[at] != 0) add(plan_.early_weights[i].step, us(at), us(at + 1));
  return timeline;
}

}  // namespace lenslet::cuda
