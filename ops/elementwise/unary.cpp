#include "ops/elementwise/unary.h"

#include <fmt/format.h>

#include <limits>

#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/elementwise/unary_cuda.h"

namespace lenslet {

namespace {

template <typename T, typename F>
void transform(const RunContext& context, const F& f) {
  const auto x = context.inputs[0].values<T>();
  const auto y = context.outputs[0].values<T>();
  context.pool.parallel_for(static_cast<std::int64_t>(x.size()), elementwise_grain,
                            [&](std::int64_t begin, std::int64_t end, int) {
                              for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
                                y[i] = f(x[i]);
                            });
}

void transform_f32(const RunContext& context, const UnaryFunction& function) {
  const float* x = context.inputs[0].values<float>().data();
  float* y = context.outputs[0].values<float>().data();
  context.pool.parallel_for(
      context.outputs[0].elems(), elementwise_grain,
      [&](std::int64_t begin, std::int64_t end, int) { apply_unary(function, x + begin, y + begin, end - begin); });
}

// Abs, Neg and Relu of the types that shape arithmetic uses. The least integer has no negative: it stays itself.
template <typename T>
void run_plain(const RunContext& context, UnaryKind kind) {
  const auto negative = [](T v) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(v));
    else
      return -v;
  };
  switch (kind) {
    case UnaryKind::abs:
      return transform<T>(context, [&](T v) { return v < 0 ? negative(v) : v; });
    case UnaryKind::neg:
      return transform<T>(context, negative);
    case UnaryKind::relu:
      return transform<T>(context, [](T v) { return v < 0 ? T{0} : v; });
    default:
      throw Error(ErrorKind::internal, "no such function of this element type");
  }
}

std::shared_ptr<const Op> make(std::string_view type, UnaryFunction function, AttributeReader& reader) {
  reader.ignore("consumed_inputs");
  reader.finish();
  return std::make_shared<UnaryOp>(type, function);
}

std::shared_ptr<const Op> make(std::string_view type, UnaryKind kind, const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  return make(type, UnaryFunction{kind, 0, 0}, reader);
}

float real(AttributeReader& reader, std::string_view name, double fallback) {
  return static_cast<float>(reader.real(name, fallback));
}

// The bound in input `index`, or `fallback` when it was left out.
template <typename T>
T bound(std::span<const Tensor> inputs, std::size_t index, T fallback) {
  if (!present(inputs, index)) return fallback;
  return inputs[index].values<T>()[0];
}

template <typename T>
void run_clip(const RunContext& context) {
  const T low = bound(context.inputs, 1, std::numeric_limits<T>::lowest());
  const T high = bound(context.inputs, 2, std::numeric_limits<T>::max());
  transform<T>(context, [=](T v) {
    const T raised = v < low ? low : v;
    return high < raised ? high : raised;
  });
}

constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace

AttributeList UnaryOp::attributes() const {
  const double alpha = function.alpha, beta = function.beta;
  switch (function.kind) {
    case UnaryKind::leaky_relu:
    case UnaryKind::elu:
      return {{"alpha", alpha}};
    case UnaryKind::selu:
      return {{"alpha", alpha}, {"gamma", beta}};
    case UnaryKind::hard_sigmoid:
      return {{"alpha", alpha}, {"beta", beta}};
    default:
      return {};
  }
}

std::vector<TensorType> UnaryOp::infer(std::span<const InputInfo> inputs) const {
  const TensorType& x = required_input(inputs, 0, "X");
  if (function.kind == UnaryKind::abs || function.kind == UnaryKind::neg)
    require_dtype("input X", x.dtype, {DType::f32, DType::f64, DType::i8, DType::i16, DType::i32, DType::i64});
  else if (function.kind == UnaryKind::relu)
    require_dtype("input X", x.dtype, {DType::f32, DType::f64, DType::i8, DType::i16, DType::i32, DType::i64});
  else
    require_dtype("input X", x.dtype, {DType::f32});
  return {x};
}

double UnaryOp::flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const {
  return static_cast<double>(outputs[0].shape.elems());
}

void UnaryOp::run_cpu(const RunContext& context) const {
  switch (context.inputs[0].dtype()) {
    case DType::f64:
      return run_plain<double>(context, function.kind);
    case DType::i8:
      return run_plain<std::int8_t>(context, function.kind);
    case DType::i16:
      return run_plain<std::int16_t>(context, function.kind);
    case DType::i32:
      return run_plain<std::int32_t>(context, function.kind);
    case DType::i64:
      return run_plain<std::int64_t>(context, function.kind);
    default:
      return transform_f32(context, function);
  }
}

void UnaryOp::run_cuda(const CudaRun& run) const {
  if constexpr (cuda_built) cuda::unary(run.context, function, run.inputs[0], run.outputs[0]);
}

AttributeList ClipOp::attributes() const {
  AttributeList list;
  if (min) list.emplace_back("min", static_cast<double>(*min));
  if (max) list.emplace_back("max", static_cast<double>(*max));
  return list;
}

std::vector<TensorType> ClipOp::infer(std::span<const InputInfo> inputs) const {
  const TensorType& x = required_input(inputs, 0, "input");
  require_dtype("input", x.dtype,
                {DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::i64});
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (!inputs[i].present) continue;
    const char* name = i == 1 ? "min" : "max";
    if (inputs[i].type.dtype != x.dtype)
      throw Error(ErrorKind::invalid_model, fmt::format("input {} is {}, but the clipped tensor is {}", name,
                                                        to_string(inputs[i].type.dtype), to_string(x.dtype)));
    // ONNX wants a scalar; exporters also write [1], which every runtime takes.
    if (inputs[i].type.shape.elems() != 1)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("input {} has shape {}, expected a scalar", name, inputs[i].type.shape.str()));
  }
  return {x};
}

double ClipOp::flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const {
  return 2.0 * static_cast<double>(outputs[0].shape.elems());
}

void ClipOp::run_cpu(const RunContext& context) const {
  switch (context.inputs[0].dtype()) {
    case DType::f64:
      return run_clip<double>(context);
    case DType::i8:
      return run_clip<std::int8_t>(context);
    case DType::u8:
      return run_clip<std::uint8_t>(context);
    case DType::i16:
      return run_clip<std::int16_t>(context);
    case DType::u16:
      return run_clip<std::uint16_t>(context);
    case DType::i32:
      return run_clip<std::int32_t>(context);
    case DType::i64:
      return run_clip<std::int64_t>(context);
    default:
      return transform_f32(context, {UnaryKind::clip, bound(context.inputs, 1, min.value_or(-infinity)),
                                     bound(context.inputs, 2, max.value_or(infinity))});
  }
}

void ClipOp::run_cuda(const CudaRun& run) const {
  if constexpr (cuda_built) {
    const Tensor none;
    const auto at = [&](std::span<const Tensor> tensors, std::size_t i) -> const Tensor& {
      return i < tensors.size() ? tensors[i] : none;
    };
    const cuda::ClipBounds bounds{
        at(run.inputs, 1), at(run.inputs, 2), at(run.host_inputs, 1), at(run.host_inputs, 2), min, max};
    cuda::clip(run.context, bounds, run.inputs[0], run.outputs[0]);
  }
}

std::optional<Activation> as_activation(const Op& op, std::span<const InputInfo> inputs) {
  if (inputs.empty() || inputs[0].type.dtype != DType::f32) return std::nullopt;
  if (const auto* clip = dynamic_cast<const ClipOp*>(&op)) {
    float low = clip->min.value_or(-infinity), high = clip->max.value_or(infinity);
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      if (!inputs[i].present) continue;
      if (inputs[i].constant == nullptr) return std::nullopt;
      (i == 1 ? low : high) = inputs[i].constant->values<float>()[0];
    }
    // The attribute form's defaults are the largest floats: no bound at all for finite values.
    if (low == 0 && high >= std::numeric_limits<float>::max()) return Activation{Activation::Kind::relu, 0, 0};
    return Activation{Activation::Kind::clip, low, high};
  }
  const auto* unary = dynamic_cast<const UnaryOp*>(&op);
  if (unary == nullptr) return std::nullopt;
  const UnaryFunction& f = unary->function;
  switch (f.kind) {
    case UnaryKind::relu:
      return Activation{Activation::Kind::relu, 0, 0};
    case UnaryKind::leaky_relu:
      return Activation{Activation::Kind::leaky_relu, f.alpha, 0};
    case UnaryKind::sigmoid:
      return Activation{Activation::Kind::sigmoid, 0, 0};
    case UnaryKind::silu:
      return Activation{Activation::Kind::silu, 0, 0};
    case UnaryKind::hard_swish:
      return Activation{Activation::Kind::hard_swish, f.alpha, f.beta};
    case UnaryKind::hard_sigmoid:
      return Activation{Activation::Kind::hard_sigmoid, f.alpha, f.beta};
    default:
      return std::nullopt;
  }
}

std::shared_ptr<const Op> make_relu(const NodeSpec& spec) { return make("Relu", UnaryKind::relu, spec); }
std::shared_ptr<const Op> make_sigmoid(const NodeSpec& spec) { return make("Sigmoid", UnaryKind::sigmoid, spec); }
std::shared_ptr<const Op> make_tanh(const NodeSpec& spec) { return make("Tanh", UnaryKind::tanh, spec); }
std::shared_ptr<const Op> make_silu(const NodeSpec& spec) { return make("SiLU", UnaryKind::silu, spec); }
std::shared_ptr<const Op> make_softplus(const NodeSpec& spec) { return make("Softplus", UnaryKind::softplus, spec); }
std::shared_ptr<const Op> make_mish(const NodeSpec& spec) { return make("Mish", UnaryKind::mish, spec); }
std::shared_ptr<const Op> make_abs(const NodeSpec& spec) { return make("Abs", UnaryKind::abs, spec); }
std::shared_ptr<const Op> make_neg(const NodeSpec& spec) { return make("Neg", UnaryKind::neg, spec); }
std::shared_ptr<const Op> make_exp(const NodeSpec& spec) { return make("Exp", UnaryKind::exp, spec); }
std::shared_ptr<const Op> make_log(const NodeSpec& spec) { return make("Log", UnaryKind::log, spec); }
std::shared_ptr<const Op> make_sqrt(const NodeSpec& spec) { return make("Sqrt", UnaryKind::sqrt, spec); }
std::shared_ptr<const Op> make_reciprocal(const NodeSpec& spec) {
  return make("Reciprocal", UnaryKind::reciprocal, spec);
}
std::shared_ptr<const Op> make_floor(const NodeSpec& spec) { return make("Floor", UnaryKind::floor, spec); }
std::shared_ptr<const Op> make_ceil(const NodeSpec& spec) { return make("Ceil", UnaryKind::ceil, spec); }
std::shared_ptr<const Op> make_erf(const NodeSpec& spec) { return make("Erf", UnaryKind::erf, spec); }

std::shared_ptr<const Op> make_hard_swish(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  return make("HardSwish", UnaryFunction{UnaryKind::hard_swish, 1.0f / 6.0f, 0.5f}, reader);
}
std::shared_ptr<const Op> make_hard_sigmoid(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  return make("HardSigmoid",
              UnaryFunction{UnaryKind::hard_sigmoid, real(reader, "alpha", 0.2), real(reader, "beta", 0.5)}, reader);
}
std::shared_ptr<const Op> make_leaky_relu(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  return make("LeakyRelu", UnaryFunction{UnaryKind::leaky_relu, real(reader, "alpha", 0.01), 0}, reader);
}
std::shared_ptr<const Op> make_elu(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  return make("Elu", UnaryFunction{UnaryKind::elu, real(reader, "alpha", 1.0), 0}, reader);
}
std::shared_ptr<const Op> make_selu(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  return make("Selu",
              UnaryFunction{UnaryKind::selu, real(reader, "alpha", 1.67326319217681884765625),
                            real(reader, "gamma", 1.05070102214813232421875)},
              reader);
}

std::shared_ptr<const Op> make_silu() {
  return std::make_shared<UnaryOp>("SiLU", UnaryFunction{UnaryKind::silu, 0, 0});
}

std::shared_ptr<const Op> make_clip(const NodeSpec& spec) {
  auto op = std::make_shared<ClipOp>();
  AttributeReader reader(spec.attributes);
  reader.ignore("consumed_inputs");
  if (spec.opset < 11) {
    if (spec.inputs > 1)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("opset {} has the bounds as attributes, not inputs", spec.opset));
    if (reader.has("min")) op->min = real(reader, "min", 0);
    if (reader.has("max")) op->max = real(reader, "max", 0);
  }
  reader.finish();
  return op;
}

}  // namespace lenslet
