#include "ops/conv/separable.h"

#include <fmt/format.h>

#include <utility>

#include "ops/core/checks.h"

namespace lenslet {
namespace {

constexpr std::string_view prefix = "depthwise_";

std::shared_ptr<const ConvOp> conv_of(const NodeSpec& spec, AttributeList attributes, std::size_t inputs) {
  return std::make_shared<ConvOp>(
      NodeSpec{.attributes = attributes, .opset = spec.opset, .inputs = inputs, .outputs = 1, .normalised = true});
}

void append(AttributeList& list, const Op& op, std::string_view before) {
  for (const auto& [name, value] : op.attributes()) list.emplace_back(fmt::format("{}{}", before, name), value);
}

}  // namespace

double SeparableProblem::bytes() const {
  ConvProblem between = pointwise;
  between.residual = between.bias = false;
  between.k = 0;
  return depthwise.bytes() + pointwise.bytes() - 2 * between.bytes();
}

std::string SeparableProblem::str() const {
  std::string text = fmt::format("{}; -> {}", depthwise.str(), pointwise.k);
  if (pointwise.bias) text += " +bias";
  if (pointwise.residual) text += " +residual";
  if (pointwise.activation.kind != Activation::Kind::none) text += " +" + to_string(pointwise.activation);
  return text;
}

SeparableConvOp::SeparableConvOp(const NodeSpec& spec) {
  AttributeList first, second;
  for (const auto& [name, value] : spec.attributes) {
    if (name.starts_with(prefix))
      first.emplace_back(name.substr(prefix.size()), value);
    else
      second.emplace_back(name, value);
  }
  depthwise_ = conv_of(spec, std::move(first), 3);
  pointwise_ = conv_of(spec, std::move(second), 4);
}

AttributeList SeparableConvOp::attributes() const { return separable_attributes(*depthwise_, *pointwise_); }

AttributeList separable_attributes(const Op& depthwise, const Op& pointwise) {
  AttributeList list;
  append(list, depthwise, prefix);
  append(list, pointwise, "");
  return list;
}

SeparableProblem SeparableConvOp::problem(std::span<const InputInfo> inputs) const {
  const auto at = [&](std::size_t i) { return i < inputs.size() ? inputs[i] : InputInfo(); };
  for (const std::size_t i : {input, depthwise_filter, filter})
    if (!at(i).present) throw Error(ErrorKind::invalid_model, "separable convolution: input or filter is left out");
  const InputInfo first[] = {at(input), at(depthwise_filter), at(depthwise_bias)};
  SeparableProblem problem;
  problem.depthwise = depthwise_->problem(first);
  const ConvProblem &d = problem.depthwise, &p = problem.pointwise;
  const InputInfo between{.present = true, .type = {d.storage, {d.n, d.k, d.p, d.q}}};
  const InputInfo second[] = {between, at(filter), at(bias), at(residual)};
  problem.pointwise = pointwise_->problem(second);
  if (at(input).type.shape.rank() != 4 || d.groups != d.c || d.c != d.k || d.max_pool || p.groups != 1 || p.max_pool ||
      p.r * p.s != 1 || p.stride_h != 1 || p.stride_w != 1 || p.padded())
    throw Error(ErrorKind::internal, "separable convolution: " + problem.str() + " is none");
  return problem;
}

std::vector<TensorType> SeparableConvOp::infer(std::span<const InputInfo> inputs) const {
  const ConvProblem p = problem(inputs).pointwise;
  return {{inputs[input].type.dtype, {p.n, p.k, p.p, p.q}}};
}

double SeparableConvOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const {
  return problem(inputs).flops();
}

std::string SeparableConvOp::describe(std::span<const InputInfo> inputs) const { return problem(inputs).str(); }

std::optional<AxisMap> SeparableConvOp::axis_map(std::span<const InputInfo> inputs, const Shape&) const {
  return axes_kept(inputs.size(), {0});
}

std::unique_ptr<const Problem> pose(const SeparableProblem& problem, const Tensor& depthwise_filter,
                                    const Tensor& depthwise_bias, const Tensor& filter, const Tensor& bias,
                                    const AttributeList& more_attributes) {
  const ConvProblem &d = problem.depthwise, &p = problem.pointwise;
  const auto given = [&](DType dtype, Shape shape, bool there, const Tensor* constant = nullptr) {
    return InputInfo{
        .present = there, .type = {dtype, there ? shape : Shape()}, .constant = there ? constant : nullptr};
  };
  const Shape y{p.n, p.k, p.p, p.q};
  const InputInfo inputs[] = {
      given(d.storage, {d.n, d.c, d.h, d.w}, true),      given(DType::f32, {d.c, 1, d.r, d.s}, true, &depthwise_filter),
      given(DType::f32, {d.c}, d.bias, &depthwise_bias), given(DType::f32, {p.k, p.c, 1, 1}, true, &filter),
      given(DType::f32, {p.k}, p.bias, &bias),           given(p.storage, y, p.residual)};
  AttributeList attributes = separable_attributes(ConvOp(d), ConvOp(p));
  attributes.insert(attributes.end(), more_attributes.begin(), more_attributes.end());
  return std::make_unique<const Problem>(make_normalised_op("SeparableConv", attributes, std::size(inputs)), inputs,
                                         std::vector<TensorType>{{p.storage, y}});
}

OpParts separable_conv() { return {.make = make_from<SeparableConvOp>}; }

}  // namespace lenslet
