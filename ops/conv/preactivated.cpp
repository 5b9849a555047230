#include "ops/conv/preactivated.h"

#include <fmt/format.h>

#include <utility>

#include "ops/core/checks.h"

namespace lenslet {
namespace {

constexpr std::string_view prefix = "x_";

}  // namespace

std::string PreactivatedProblem::str() const {
  const std::string before = to_string(activation);
  if (!normalises()) return fmt::format("{}; {}", before, conv.str());
  return fmt::format("layer norm{}; {}", activation.kind == Activation::Kind::none ? "" : " " + before, conv.str());
}

AttributeList preactivation_attributes(const Activation& activation, std::optional<float> epsilon) {
  AttributeList plain, list;
  append_attributes(plain, {.activation = activation});
  if (epsilon) plain.emplace_back("epsilon", static_cast<double>(*epsilon));
  for (const auto& [name, value] : plain) list.emplace_back(fmt::format("{}{}", prefix, name), value);
  return list;
}

PreactivatedConvOp::PreactivatedConvOp(const NodeSpec& spec) {
  AttributeList before, after;
  for (const auto& [name, value] : spec.attributes)
    (name.starts_with(prefix) ? before : after).emplace_back(name.starts_with(prefix) ? name.substr(2) : name, value);
  const auto normalised = [&](const AttributeList& list, std::size_t inputs) {
    return NodeSpec{.attributes = list, .opset = spec.opset, .inputs = inputs, .outputs = 1, .normalised = true};
  };
  const NodeSpec of_activation = normalised(before, 3);
  AttributeReader reader(of_activation);
  Epilogue epilogue;
  read_epilogue(reader, epilogue);
  if (reader.has("epsilon")) {
    epsilon_ = static_cast<float>(reader.real("epsilon", 0));
    if (!(epsilon_ >= 0)) throw Error(ErrorKind::invalid_model, "preactivated convolution: epsilon is below 0");
  }
  reader.finish();
  activation_ = epilogue.activation;
  conv_ = std::make_shared<ConvOp>(normalised(after, 4));
}

AttributeList PreactivatedConvOp::attributes() const {
  AttributeList list = conv_->attributes();
  const auto before = preactivation_attributes(activation_, epsilon_ >= 0 ? std::optional(epsilon_) : std::nullopt);
  list.insert(list.end(), before.begin(), before.end());
  return list;
}

PreactivatedProblem PreactivatedConvOp::problem(std::span<const InputInfo> inputs) const {
  const auto at = [&](std::size_t i) { return i < inputs.size() ? inputs[i] : InputInfo(); };
  for (const std::size_t i : {input, scale, shift, filter})
    if (!at(i).present) throw Error(ErrorKind::invalid_model, "preactivated convolution: an input is left out");
  const InputInfo of_conv[] = {at(input), at(filter), at(bias), at(residual)};
  const PreactivatedProblem problem{.conv = conv_->problem(of_conv), .activation = activation_, .epsilon = epsilon_};
  const ConvProblem& p = problem.conv;
  if (at(input).type.shape.rank() != 4 || p.groups != 1 || p.max_pool || p.r * p.s != 1 || p.padded())
    throw Error(ErrorKind::internal, "preactivated convolution: " + problem.str() + " is none");
  for (const std::size_t i : {scale, shift})
    if (at(i).type.shape != Shape{p.c})
      throw Error(ErrorKind::invalid_model,
                  fmt::format("preactivated convolution: {} for {} channels", at(i).type.shape.str(), p.c));
  return problem;
}

std::vector<TensorType> PreactivatedConvOp::infer(std::span<const InputInfo> inputs) const {
  const ConvProblem p = problem(inputs).conv;
  return {{inputs[input].type.dtype, {p.n, p.k, p.p, p.q}}};
}

double PreactivatedConvOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const {
  return problem(inputs).flops();
}

std::string PreactivatedConvOp::describe(std::span<const InputInfo> inputs) const { return problem(inputs).str(); }

std::optional<AxisMap> PreactivatedConvOp::axis_map(std::span<const InputInfo> inputs, const Shape&) const {
  return axes_kept(inputs.size(), {0});
}

OpParts preactivated_conv() { return {.make = make_from<PreactivatedConvOp>}; }

}  // namespace lenslet
