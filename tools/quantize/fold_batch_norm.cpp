#include "tools/quantize/fold_batch_norm.h"

#include <cmath>

namespace lenslet::tool {

namespace {

/// False if the two do not fit.
bool fold(OnnxFile& file, EditedNode& conv, const EditedNode& norm) {
  std::optional<FloatTensor> weights = file.constant(conv.inputs[1]), constants[4];
  if (!weights || weights->dims.empty()) return false;
  const std::size_t filters = static_cast<std::size_t>(weights->dims[0]);
  for (std::size_t i = 0; i < 4; ++i) {
    constants[i] = norm.has_input(i + 1) ? file.constant(norm.inputs[i + 1]) : std::nullopt;
    if (!constants[i] || constants[i]->values.size() != filters) return false;
  }
  FloatTensor bias{{weights->dims[0]}, std::vector<float>(filters, 0.0f)};
  if (conv.has_input(2)) {
    const auto given = file.constant(conv.inputs[2]);
    if (!given || given->values.size() != filters) return false;
    bias = *given;
  }
  const auto epsilon = norm.attribute("epsilon");
  const double eps = epsilon && epsilon->real ? *epsilon->real : 1e-5f;
  const std::size_t terms = filters == 0 ? 0 : weights->values.size() / filters;
  for (std::size_t k = 0; k < filters; ++k) {
    const auto of = [&](std::size_t i) { return static_cast<double>(constants[i]->values[k]); };
    const double factor = of(0) / std::sqrt(of(3) + eps);
    for (std::size_t i = k * terms; i < (k + 1) * terms; ++i)
      weights->values[i] = static_cast<float>(weights->values[i] * factor);
    bias.values[k] = static_cast<float>((bias.values[k] - of(2)) * factor + of(1));
  }
  conv.inputs.resize(3);
  conv.inputs[1] = file.new_name(conv.inputs[1] + "_folded");
  conv.inputs[2] = file.new_name(conv.label() + "_bias_folded");
  file.add(make_tensor(conv.inputs[1], weights->dims, weights->values));
  file.add(make_tensor(conv.inputs[2], bias.dims, bias.values));
  conv.outputs[0] = norm.outputs[0];
  return true;
}

}  // namespace

void fold_batch_norm(OnnxFile& file) {
  const auto reads = file.reads();
  std::map<std::string, std::size_t> convs;  // by output
  std::vector<bool> folded(file.nodes.size());
  for (std::size_t i = 0; i < file.nodes.size(); ++i) {
    const EditedNode& node = file.nodes[i];
    if (!node.is_standard() || !node.has_input(0)) continue;
    if (node.op == "Conv") convs[node.outputs[0]] = i;
    if (node.op != "BatchNormalization" || node.integer("training_mode", 0) != 0) continue;
    const auto conv = convs.find(node.inputs[0]);
    if (conv == convs.end() || reads.at(node.inputs[0]) != 1) continue;
    folded[i] = fold(file, file.nodes[conv->second], node);
  }
  std::size_t at = 0;
  std::erase_if(file.nodes, [&](const EditedNode&) { return folded[at++]; });
  file.remove_unread();
}

}  // namespace lenslet::tool
