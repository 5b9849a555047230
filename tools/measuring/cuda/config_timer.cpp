#include "tools/measuring/cuda/config_timer.h"

#include <algorithm>
#include <random>
#include <vector>

#include "tools/measuring/samples.h"

namespace lenslet::bench {

double replay_us(const cuda::GraphExec& graph, const cuda::Stream& stream, int replays) {
  std::vector<double> us;
  for (int i = 0; i < replays + 1; ++i) {
    cuda::Event start, stop;
    start.record(stream);
    graph.launch(stream);
    stop.record(stream);
    stop.synchronize();
    if (i > 0) us.push_back(1e3 * static_cast<double>(stop.ms_since(start)));
  }
  return tool::quantiles(us).median;
}

double measure_us(const cuda::Session& session, const BoundKernel& bound, KernelRun run) {
  constexpr int runs_a_graph = 20;
  cuda::GraphRecorder recorder;
  cuda::Context context = session.context();
  context.recorder = &recorder;
  run.cuda = &context;
  for (int i = 0; i < runs_a_graph; ++i) bound.run(run);
  const cuda::GraphExec graph(recorder);
  return replay_us(graph, session.stream(), 5) / runs_a_graph;
}

Tensor drawn(const Shape& shape) {
  static std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Tensor tensor(DType::f32, shape);
  for (float& value : tensor.values<float>()) value = uniform(random);
  return tensor;
}

cuda::DeviceBuffer<std::byte> drawn_on_device(DType type, std::int64_t count) {
  static const Tensor values = drawn({1'000'003});
  const Tensor once = values.to_dtype(type);
  cuda::DeviceBuffer<std::byte> buffer(static_cast<std::size_t>(count) * dtype_bytes(type));
  for (std::size_t at = 0; at < buffer.bytes(); at += once.bytes())
    cuda::copy_to_device(buffer.data() + at, once.data(), std::min(once.bytes(), buffer.bytes() - at));
  return buffer;
}

TimedConv::TimedConv(const cuda::Session& session, std::string_view algorithm, const ConvProblem& problem,
                     const Numerics& numerics)
    : session_(session),
      kernel_(*find_kernel("Conv", DeviceKind::cuda, algorithm)),
      device_(cuda::device_profile(0)),
      p_(problem),
      w_(drawn({p_.k, p_.group_c(), p_.r, p_.s})),
      problem_(pose(p_, w_)) {
  Offer offer = kernel_.offer(*problem_, {.device = device_, .numerics = numerics});
  if (!offer.refusal.empty()) return;
  offered_ = std::move(offer.candidates.at(0));
  const auto stored = [](const Format& format, const Shape& shape) { return Strides(format, shape).stored + 16; };
  const std::int64_t outputs = stored(offered_->outputs[0], {p_.n, p_.k, p_.stored_p(), p_.stored_q()});
  x_ = drawn_on_device(p_.x_storage, stored(offered_->inputs[0], {p_.n, p_.c, p_.h, p_.w}));
  bias_ = drawn_on_device(DType::f32, p_.k);
  if (p_.residual) residual_ = drawn_on_device(p_.storage, outputs);
  y_ = cuda::DeviceBuffer<std::byte>(static_cast<std::size_t>(outputs) * dtype_bytes(p_.storage));
}

double TimedConv::us(const std::string& config) {
  Candidate candidate = offered_.value();
  candidate.config = config;
  const auto bound = kernel_.bind({*problem_, candidate, device_});
  const BlobSpec spec = kernel_.blob(*problem_, candidate).value();
  auto blob = blobs_.find(spec.key);
  if (blob == blobs_.end()) {
    std::vector<std::byte> prepared(spec.bytes);
    kernel_.prepare(*problem_, candidate, prepared);
    blob = blobs_.emplace(spec.key, cuda::upload(prepared)).first;
  }
  if (workspace_.bytes() < bound->workspace_bytes())
    workspace_ = cuda::DeviceBuffer<std::byte>(bound->workspace_bytes());
  const Shape y{p_.n, p_.k, p_.stored_p(), p_.stored_q()};
  const Tensor inputs[] = {
      Tensor::view(p_.x_storage, {p_.n, p_.c, p_.h, p_.w}, x_.data(), candidate.inputs[0]), Tensor(),
      Tensor::view(DType::f32, {p_.k}, bias_.data()),
      p_.residual ? Tensor::view(p_.storage, y, residual_.data(), candidate.outputs[0]) : Tensor()};
  Tensor outputs[] = {Tensor::view(p_.storage, y, y_.data(), candidate.outputs[0])};
  return measure_us(session_, *bound,
                    {.inputs = inputs,
                     .outputs = outputs,
                     .workspace = {workspace_.data(), bound->workspace_bytes()},
                     .blob = blob->second.data()});
}

ConvProblem ConvRow::problem(DType storage) const {
  ConvGeometry geometry;
  geometry.pads.fill(pad);
  geometry.stride = {stride, stride};
  geometry.groups = groups;
  ConvProblem p = resolve_conv({n, c, size, size}, {k, c / groups, filter, filter}, geometry);
  p.bias = true;
  p.residual = residual;
  p.activation.kind = Activation::Kind::relu;
  p.storage = p.x_storage = storage;
  return p;
}

}  // namespace lenslet::bench
