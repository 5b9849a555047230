#include "ops/conv/conv.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "ops/conv/choose.h"
#include "ops/conv/cpu/algorithms.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/core/type_check.h"

namespace lenslet {
namespace {

constexpr std::size_t kInput = 0, kFilter = 1, kBias = 2, kResidual = 3;

void require_f32(std::span<const InputInfo> inputs, std::size_t i, const char* what) {
  if (present(inputs, i) && inputs[i].type.dtype != DType::f32)
    throw Error(ErrorKind::unsupported,
                fmt::format("convolution of {} {}; only float32 is done", to_string(inputs[i].type.dtype), what));
}

/// An attribute list of one entry a spatial axis, as [h, w]; 1-D: h gets `fallback`. `rank` collects the spatial rank.
std::array<std::int64_t, 2> per_axis(const std::vector<std::int64_t>& list, const char* name, std::int64_t fallback,
                                     int& rank) {
  if (list.empty()) return {fallback, fallback};
  const int entries = static_cast<int>(list.size());
  if (list.size() > 2)
    throw Error(ErrorKind::unsupported,
                fmt::format("{}-D convolution ({} has {} entries); 1-D and 2-D are done", entries, name, entries));
  if (rank != 0 && rank != entries)
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute {} has {} entries where others speak of {} axes", name, entries, rank));
  rank = entries;
  if (entries == 1) return {fallback, list[0]};
  return {list[0], list[1]};
}

}  // namespace

std::shared_ptr<const Op> make_conv(const NodeSpec& spec) {
  auto op = std::make_shared<ConvOp>();
  AttributeReader reader(spec.attributes);
  int& rank = op->spatial_rank;
  op->kernel_shape = reader.integers("kernel_shape");
  (void)per_axis(op->kernel_shape, "kernel_shape", 1, rank);
  op->geometry.stride = per_axis(reader.integers("strides"), "strides", 1, rank);
  op->geometry.dilation = per_axis(reader.integers("dilations"), "dilations", 1, rank);
  // Begins of all axes, then ends of all axes.
  const std::vector<std::int64_t> pads = reader.integers("pads");
  if (pads.size() % 2 != 0)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute pads has {} entries, an odd number", pads.size()));
  const auto half = static_cast<std::ptrdiff_t>(pads.size() / 2);
  const auto begins = per_axis({pads.begin(), pads.begin() + half}, "pads (begins)", 0, rank);
  const auto ends = per_axis({pads.begin() + half, pads.end()}, "pads (ends)", 0, rank);
  op->geometry.pads = {begins[0], begins[1], ends[0], ends[1]};
  op->geometry.auto_pad = parse_auto_pad(reader.text("auto_pad", "NOTSET"));
  op->geometry.groups = reader.integer("group", 1);
  reader.finish();
  return op;
}

AttributeList ConvOp::attributes() const {
  using Integers = std::vector<std::int64_t>;
  AttributeList list;
  list.emplace_back("strides", Integers(geometry.stride.begin(), geometry.stride.end()));
  list.emplace_back("dilations", Integers(geometry.dilation.begin(), geometry.dilation.end()));
  list.emplace_back("pads", Integers(geometry.pads.begin(), geometry.pads.end()));
  if (geometry.auto_pad != AutoPad::notset) list.emplace_back("auto_pad", std::string(to_string(geometry.auto_pad)));
  list.emplace_back("group", geometry.groups);
  list.emplace_back("activation", std::string(to_string(activation.kind)));
  if (activation.kind != Activation::Kind::none && activation.kind != Activation::Kind::relu) {
    list.emplace_back("activation_alpha", static_cast<double>(activation.alpha));
    list.emplace_back("activation_beta", static_cast<double>(activation.beta));
  }
  if (algorithm != nullptr) list.emplace_back("algorithm", std::string(algorithm->name()));
  if (!weight_scale.empty())
    list.emplace_back("weight_scale", std::vector<double>(weight_scale.begin(), weight_scale.end()));
  return list;
}

ConvProblem ConvOp::problem(std::span<const InputInfo> inputs) const {
  const Shape& x = inputs[kInput].type.shape;
  const Shape& w = inputs[kFilter].type.shape;
  if (spatial_rank != 0 && x.rank() != spatial_rank + 2 && x.rank() >= 3 && x.rank() <= 4)
    throw Error(ErrorKind::invalid_model, fmt::format("convolution: attributes for {} spatial axes, input {} has {}",
                                                      spatial_rank, x.str(), x.rank() - 2));
  ConvProblem problem = resolve_conv(x, w, geometry);
  for (std::size_t i = 0; i < kernel_shape.size(); ++i)
    if (kernel_shape[i] != w[static_cast<int>(i) + 2])
      throw Error(ErrorKind::invalid_model, fmt::format("convolution: kernel_shape [{}] contradicts filter {}",
                                                        fmt::join(kernel_shape, ","), w.str()));
  if (!weight_scale.empty() && weight_scale.size() != static_cast<std::size_t>(problem.k))
    throw Error(ErrorKind::internal,
                fmt::format("convolution: {} scales for {} filters", weight_scale.size(), problem.k));
  problem.bias = present(inputs, kBias);
  problem.residual = present(inputs, kResidual);
  problem.activation = activation;
  return problem;
}

std::vector<TensorType> ConvOp::infer(std::span<const InputInfo> inputs) const {
  if (!present(inputs, kInput) || !present(inputs, kFilter))
    throw Error(ErrorKind::invalid_model, "convolution: input or filter is left out");
  require_f32(inputs, kInput, "input");
  require_f32(inputs, kFilter, "filter");
  require_f32(inputs, kBias, "bias");
  require_f32(inputs, kResidual, "residual");
  const ConvProblem problem = this->problem(inputs);
  const bool flat = inputs[kInput].type.shape.rank() == 3;
  const Shape y = flat ? Shape{problem.n, problem.k, problem.q} : Shape{problem.n, problem.k, problem.p, problem.q};
  if (problem.bias && inputs[kBias].type.shape != Shape{problem.k})
    throw Error(ErrorKind::invalid_model,
                fmt::format("convolution: bias {} for {} output channels", inputs[kBias].type.shape.str(), problem.k));
  if (problem.residual && inputs[kResidual].type.shape != y)
    throw Error(ErrorKind::invalid_model, fmt::format("convolution: residual {} added to output {}",
                                                      inputs[kResidual].type.shape.str(), y.str()));
  return {{DType::f32, y}};
}

const ConvAlgorithm& ConvOp::effective_algorithm(std::span<const InputInfo> inputs,
                                                 [[maybe_unused]] DeviceKind device) const {
  const bool plain =
      algorithm == nullptr || inputs[kFilter].constant == nullptr || inputs[kInput].type.shape.rank() != 4;
  if (!plain) return *algorithm;
  if constexpr (cuda_built)
    if (device == DeviceKind::cuda) return cuda::conv_direct();
  return conv_direct();
}

bool ConvOp::runs_in(Format layout, std::span<const InputInfo> inputs) const {
  return effective_algorithm(inputs, DeviceKind::cpu).format() == layout;
}

bool ConvOp::may_overwrite(int input) const { return input == static_cast<int>(kResidual); }

double ConvOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const {
  return problem(inputs).flops();
}

std::size_t ConvOp::workspace_bytes(const PlanContext& context) const {
  const ConvAlgorithm& chosen = effective_algorithm(context.inputs, context.device);
  return chosen.workspace_bytes(problem(context.inputs), context.device == DeviceKind::cpu ? context.threads : 1);
}

std::string ConvOp::prepare_key(const PlanContext& context) const {
  if (context.inputs[kFilter].constant == nullptr) return {};
  // The batch does not enter: plans for other batches share the filters. The scales are no input, so they are in here.
  ConvProblem problem = this->problem(context.inputs);
  problem.n = 1;
  std::string key = fmt::format("{} {}", effective_algorithm(context.inputs, context.device).name(), problem.str());
  key.append(reinterpret_cast<const char*>(weight_scale.data()), weight_scale.size() * sizeof(float));
  return key;
}

std::shared_ptr<const void> ConvOp::prepare(const PlanContext& context, std::size_t& bytes) const {
  const ConvFilter filter{context.inputs[kFilter].constant->values<float>().data(),
                          weight_scale.empty() ? nullptr : weight_scale.data()};
  std::shared_ptr<const PreparedFilter> prepared =
      effective_algorithm(context.inputs, context.device).prepare(problem(context.inputs), filter);
  bytes = prepared->bytes();
  return prepared;
}

namespace {

/// The tensors of a run as what the problem is resolved from.
std::array<InputInfo, 4> infos_of(std::span<const Tensor> inputs, const void* prepared) {
  std::array<InputInfo, 4> infos;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (!present(inputs, i)) continue;
    infos[i].present = true;
    infos[i].type = {DType::f32, inputs[i].shape()};
  }
  if (prepared != nullptr) infos[kFilter].constant = &inputs[kFilter];
  return infos;
}

/// A call with everything but what the device brings. `unprepared` serves filters that an earlier node computes.
ConvRun call_of(const ConvProblem& problem, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                const void* prepared, DirectFilter& unprepared) {
  const auto input = [&](std::size_t i) {
    return present(inputs, i) ? static_cast<const float*>(inputs[i].data()) : nullptr;
  };
  unprepared.w = input(kFilter);
  return {.problem = problem,
          .x = input(kInput),
          .filter = prepared != nullptr ? static_cast<const PreparedFilter*>(prepared) : &unprepared,
          .bias = input(kBias),
          .residual = input(kResidual),
          .y = static_cast<float*>(outputs[0].data())};
}

}  // namespace

void ConvOp::run_cpu(const RunContext& context) const {
  const auto infos = infos_of(context.inputs, context.prepared);
  const ConvProblem problem = this->problem(infos);
  DirectFilter unprepared;
  unprepared.scale = weight_scale.empty() ? nullptr : weight_scale.data();
  ConvRun run = call_of(problem, context.inputs, context.outputs, context.prepared, unprepared);
  run.workspace = context.workspace;
  run.pool = &context.pool;
  effective_algorithm(infos, DeviceKind::cpu).run(run);
}

std::optional<std::string> ConvOp::refuse_cuda(std::span<const InputInfo> inputs) const {
  if (inputs[kFilter].constant == nullptr && !weight_scale.empty())
    return "its filters are computed by the network and scaled";
  return std::nullopt;
}

bool ConvOp::reads_on_cuda(int input, const PlanContext& context) const {
  return input != static_cast<int>(kFilter) || context.inputs[kFilter].constant == nullptr;
}

void ConvOp::run_cuda(const CudaRun& run) const {
  const auto infos = infos_of(run.inputs, run.prepared);
  const ConvProblem problem = this->problem(infos);
  DirectFilter unprepared;
  ConvRun call = call_of(problem, run.inputs, run.outputs, run.prepared, unprepared);
  call.workspace = run.workspace;
  call.cuda = &run.context;
  effective_algorithm(infos, DeviceKind::cuda).run(call);
}

}  // namespace lenslet
