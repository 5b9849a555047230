#include <algorithm>
#include <array>

#include "tools/quantize/qdq.h"

namespace lenslet::tool {

namespace {

template <std::size_t n>
bool is_one_of(const std::array<std::string_view, n>& names, std::string_view op) {
  return std::ranges::count(names, op) > 0;
}

constexpr std::array<std::string_view, 4> products = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
// These give elements of their inputs: one scale on both sides.
constexpr std::array<std::string_view, 14> movements = {
    "MaxPool", "Concat", "Reshape", "Flatten", "Transpose",    "Squeeze",      "Unsqueeze",
    "Slice",   "Split",  "Pad",     "Resize",  "DepthToSpace", "SpaceToDepth", "Identity"};
// Functions of two numbers (a quotient by a known one), of one, and means.
constexpr std::array<std::string_view, 18> computations = {
    "Div",  "Add",       "Mul",     "AveragePool", "GlobalAveragePool", "Relu",
    "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish",         "Elu",
    "Selu", "Tanh",      "Celu",    "Mish",        "Softplus",          "Softsign"};

bool moves_only(const OnnxFile& file, const EditedNode& node) {
  if (node.op == "Resize") {
    const auto mode = node.attribute("mode");
    return !mode || mode->text == "nearest";
  }
  if (node.op == "MaxPool") return node.outputs.size() == 1;
  if (node.op != "Pad") return true;
  const auto mode = node.attribute("mode");
  if (mode && mode->text != "constant") return true;
  if (!node.has_input(2)) return true;
  const auto value = file.constant(node.inputs[2]);  // 0 has a code in every range
  return value && value->values.size() == 1 && value->values[0] == 0;
}

class Planner {
 public:
  Planner(const OnnxFile& file, const Floats& floats)
      : file_(file), floats_(floats), reads_(file.reads()), eligible_(file.nodes.size()), product_(file.nodes.size()) {}

  QuantizePlan plan() {
    find_eligible();
    select_forward();
    select_backward();
    group_values();
    list_layers();
    return std::move(plan_);
  }

 private:
  const EditedNode& node(std::size_t i) const { return file_.nodes[i]; }

  void find_eligible() {
    std::set<std::string> float32;  // values of which that is known
    for (std::size_t i = 0; i < file_.nodes.size(); ++i) {
      const EditedNode& n = node(i);
      for (const std::string& input : n.inputs) readers_[input].push_back(i);
      if (!n.is_standard()) continue;
      const bool known = has_known_weights(file_, n);
      const auto inputs = data_inputs(n);
      const bool follows =
          (is_one_of(computations, n.op) || (is_one_of(movements, n.op) && moves_only(file_, n))) &&
          std::ranges::any_of(inputs, [&](const auto& x) { return float32.contains(x); }) &&
          std::ranges::all_of(
              inputs, [&](const auto& x) { return float32.contains(x) || (n.op != "Concat" && file_.constant(x)); }) &&
          (n.op != "Div" || file_.constant(n.inputs[1]));
      if (!known && !follows) continue;
      float32.insert(n.outputs.begin(), n.outputs.end());
      product_[i] = known && !stays_float(n);
      eligible_[i] = !stays_float(n);
    }
    // What leads to a product.
    for (std::size_t i = file_.nodes.size(); i-- > 0;) {
      const bool leads =
          product_[i] || std::ranges::any_of(node(i).outputs, [&](const auto& x) { return leads_.contains(x); });
      if (leads) leads_.insert(node(i).inputs.begin(), node(i).inputs.end());
    }
  }

  bool stays_float(const EditedNode& n) const {
    return floats_.layers.contains(n.label()) || floats_.ops.contains(n.op) ||
           std::ranges::any_of(data_inputs(n), [&](const auto& x) { return floats_.values.contains(x); });
  }

  /// The Relu or Clip that alone reads the node's output, and is computed with it.
  const EditedNode* activation_of(const EditedNode& n) const {
    if (!is_one_of(products, n.op) && n.op != "Add" && n.op != "Mul") return nullptr;
    const std::string& output = n.outputs[0];
    const auto readers = readers_.find(output);
    if (readers == readers_.end() || readers->second.size() != 1 || reads_.at(output) != 1) return nullptr;
    const EditedNode& reader = node(readers->second[0]);
    if (!reader.is_standard() || stays_float(reader)) return nullptr;
    if (reader.op == "Relu") return &reader;
    if (reader.op != "Clip" || reader.inputs[0] != output) return nullptr;
    for (const std::size_t bound : {1U, 2U})
      if (reader.has_input(bound) && !file_.is_constant(reader.inputs[bound])) return nullptr;
    return &reader;
  }

  void select(std::size_t i) {
    plan_.nodes.insert(i);
    const EditedNode& n = node(i);
    const EditedNode* const activation = activation_of(n);
    const std::string& last = activation == nullptr ? n.outputs[0] : activation->outputs[0];
    // A product's sums stay float where no product follows.
    const bool is_last = (n.op == "Gemm" || n.op == "MatMul") && !leads_.contains(last);
    for (const std::string& input : data_inputs(n))
      if (!file_.is_constant(input)) quantized_.insert(input);
    if (is_last || floats_.values.contains(last)) return;
    if (activation != nullptr) absorbed_.insert(activation);
    for (std::size_t o = 0; o < n.outputs.size(); ++o) quantized_.insert(o == 0 ? last : n.outputs[o]);
  }

  void select_forward() {
    for (std::size_t i = 0; i < file_.nodes.size(); ++i) {
      const EditedNode& n = node(i);
      if (!eligible_[i] || absorbed_.contains(&n)) continue;
      // What follows the last product stays float.
      const bool continues =
          std::ranges::any_of(data_inputs(n), [&](const auto& x) { return quantized_.contains(x); }) &&
          std::ranges::any_of(n.outputs, [&](const auto& x) { return leads_.contains(x); });
      if (product_[i] || continues) select(i);
    }
  }

  /// Movements before the first product.
  void select_backward() {
    for (std::size_t i = file_.nodes.size(); i-- > 0;) {
      const EditedNode& n = node(i);
      if (plan_.nodes.contains(i) || n.inputs.empty() || !n.is_standard() || !is_one_of(movements, n.op) ||
          n.op == "Concat" || !moves_only(file_, n) || n.outputs.size() != 1 || stays_float(n) ||
          file_.is_constant(n.inputs[0]))
        continue;
      const auto readers = readers_.find(n.outputs[0]);
      if (readers == readers_.end() || reads_.at(n.outputs[0]) != readers->second.size()) continue;
      if (!std::ranges::all_of(readers->second, [&](std::size_t r) {
            return plan_.nodes.contains(r) && std::ranges::count(data_inputs(node(r)), n.outputs[0]) == 1;
          }))
        continue;
      plan_.nodes.insert(i);
      quantized_.insert(n.inputs[0]);
    }
  }

  std::string root(std::string value) const {
    for (auto up = plan_.group.find(value); up != plan_.group.end() && up->second != value;
         up = plan_.group.find(value))
      value = up->second;
    return value;
  }

  void group_values() {
    for (const std::string& value : quantized_) plan_.group[value] = value;
    for (const std::size_t i : plan_.nodes) {
      const EditedNode& n = node(i);
      if (!is_one_of(movements, n.op)) continue;
      for (const auto* side : {&n.inputs, &n.outputs})
        for (const std::string& value : *side)
          if (plan_.group.contains(value)) plan_.group[root(value)] = root(n.outputs[0]);
    }
    for (auto& [value, group] : plan_.group) group = root(value);
  }

  void list_layers() {
    for (const EditedPort& input : file_.inputs)
      if (quantized_.contains(input.name)) plan_.layers.push_back({input.name, "input", input.name, false});
    for (std::size_t i = 0; i < file_.nodes.size(); ++i) {
      const EditedNode& n = node(i);
      if (!plan_.nodes.contains(i)) {
        if (!absorbed_.contains(&n))
          for (const std::string& output : n.outputs)
            if (quantized_.contains(output)) plan_.layers.push_back({output, "input", output, false});
        continue;
      }
      if (is_one_of(movements, n.op)) {
        plan_.made.insert(n.outputs.begin(), n.outputs.end());
        continue;
      }
      const EditedNode* const activation = activation_of(n);
      const std::string& last = activation == nullptr ? n.outputs[0] : activation->outputs[0];
      if (quantized_.contains(last)) plan_.made.insert(last);
      plan_.layers.push_back({n.label(), n.op, quantized_.contains(last) ? last : std::string(), product_[i]});
    }
  }

  const OnnxFile& file_;
  const Floats& floats_;
  std::map<std::string, std::size_t> reads_;
  std::map<std::string, std::vector<std::size_t>> readers_;
  std::vector<bool> eligible_, product_;
  std::set<std::string> leads_, quantized_;
  std::set<const EditedNode*> absorbed_;
  QuantizePlan plan_;
};

}  // namespace

std::vector<std::string> data_inputs(const EditedNode& node) {
  if (node.inputs.empty()) return {};
  if (node.op == "Concat") return node.inputs;
  if ((node.op == "Add" || node.op == "Mul") && node.inputs.size() == 2)
    return {node.inputs.begin(), node.inputs.begin() + 2};
  return {node.inputs[0]};
}

bool has_known_weights(const OnnxFile& file, const EditedNode& node) {
  if (!node.is_standard() || !is_one_of(products, node.op) || node.inputs.size() < 2) return false;
  if (file.is_constant(node.inputs[0])) return false;
  const auto weights = file.constant(node.inputs[1]);
  if (!weights || weights->values.empty() || weights->dims.size() < 2) return false;
  if (node.op == "MatMul") return weights->dims.size() == 2;
  if (node.op == "Gemm") {
    for (const char* factor : {"alpha", "beta"})
      if (const auto given = node.attribute(factor); given && given->real.value_or(1) != 1) return false;
    if (node.integer("transA", 0) != 0) return false;
  }
  if (!node.has_input(2)) return true;
  const auto bias = file.constant(node.inputs[2]);
  return bias && !bias->dims.empty() && static_cast<std::size_t>(bias->dims.back()) == bias->values.size();
}

QuantizePlan plan_quantization(const OnnxFile& file, const Floats& floats) { return Planner(file, floats).plan(); }

}  // namespace lenslet::tool
