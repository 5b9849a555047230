#include "ops/core/op.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/kernel.h"

namespace lenslet {

AttributeReader::AttributeReader(const NodeSpec& spec) : AttributeReader(spec.attributes) {}

double Op::flops(std::span<const InputInfo>, std::span<const TensorType>) const { return 0; }
std::string Op::describe(std::span<const InputInfo>) const { return {}; }
std::optional<AxisMap> Op::axis_map(std::span<const InputInfo> inputs, const Shape& output) const {
  if (elementwise_inputs() == 0) return std::nullopt;
  return elementwise_axes(inputs, output, elementwise_inputs());
}
std::optional<PermutedOp> Op::permuted(std::span<const int> to, std::span<const InputInfo> inputs) const {
  PermutedOp same;
  int rank = -1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool along = i < elementwise_inputs() && inputs[i].present;
    if (along) rank = std::max(rank, inputs[i].type.shape.rank());
    same.inputs.push_back({.number = i, .permuted = along});
  }
  if (rank != static_cast<int>(to.size())) return std::nullopt;
  return same;
}
bool Op::gives_input_back(std::span<const InputInfo> inputs) const {
  if (alias_input() != 0) return false;
  const std::vector<TensorType> types = infer(inputs);
  return types.size() == 1 && types[0] == inputs[0].type;
}
std::shared_ptr<const Op> Op::with_epilogue(Epilogue) const {
  throw Error(ErrorKind::internal, fmt::format("{} has no epilogue", type()));
}
std::optional<Activation> Op::as_activation(std::span<const InputInfo>) const { return std::nullopt; }
std::optional<ChannelAffine> Op::as_channel_affine(std::span<const InputInfo>, std::size_t, const Shape&) const {
  return std::nullopt;
}
std::optional<std::vector<std::int64_t>> Op::imagined_zeros(std::span<const InputInfo>) const { return std::nullopt; }
std::shared_ptr<const Op> Op::imagining_zeros(std::vector<std::int64_t>) const {
  throw Error(ErrorKind::internal, fmt::format("{} imagines no zeros", type()));
}
std::optional<std::vector<std::int64_t>> Op::added_zeros(std::span<const InputInfo>) const { return std::nullopt; }
std::optional<CroppedFilter> Op::without_idle_taps(std::span<const InputInfo>) const { return std::nullopt; }

void require_input_type(const Op& op, std::span<const InputInfo> inputs) {
  const auto kernels = kernels_of(op.type(), DeviceKind::cpu);
  if (!kernels.empty()) {
    const std::size_t i = kernels.front()->typed_input();
    const DTypeSet types = supported_types(op.type());
    if (i < inputs.size() && inputs[i].present && !types.contains(inputs[i].type.dtype))
      throw Error(ErrorKind::unsupported, fmt::format("input {} has element type {} (supported: {})", i,
                                                      to_string(inputs[i].type.dtype), types.str()));
  }
}

std::vector<TensorType> infer_types(const Op& op, std::span<const InputInfo> inputs) {
  require_input_type(op, inputs);
  return op.infer(inputs);
}

std::shared_ptr<const Op> make_op(std::string_view name, std::string_view domain, const AttributeList& attributes,
                                  std::size_t inputs, std::size_t outputs, std::int64_t opset) {
  const OpRow* row = find_op(name, domain);
  if (row == nullptr) throw Error(ErrorKind::internal, fmt::format("no operator {} in the table", name));
  return row->parts.make(
      {.attributes = attributes, .opset = opset, .inputs = inputs, .outputs = outputs, .name = row->name});
}

std::shared_ptr<const Op> make_normalised_op(std::string_view name, const AttributeList& attributes, std::size_t inputs,
                                             std::size_t outputs) {
  const OpRow* row = nullptr;
  for (const std::string_view domain : {"", "lenslet", "com.microsoft"})
    if (row == nullptr) row = find_op(name, domain);
  if (row == nullptr) throw Error(ErrorKind::internal, fmt::format("no operator {} in the table", name));
  return row->parts.make(
      {.attributes = attributes, .inputs = inputs, .outputs = outputs, .name = row->name, .normalised = true});
}

std::shared_ptr<const Op> with_attributes(const Op& op, const AttributeList& changed, std::size_t inputs,
                                          std::size_t outputs) {
  AttributeList attributes = op.attributes();
  for (const auto& [name, value] : changed) {
    const auto found = std::ranges::find(attributes, name, &AttributeList::value_type::first);
    if (found == attributes.end())
      attributes.emplace_back(name, value);
    else
      found->second = value;
  }
  return make_normalised_op(op.type(), attributes, inputs, outputs);
}

}  // namespace lenslet
