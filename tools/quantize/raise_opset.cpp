#include "tools/quantize/raise_opset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "lenslet/error.h"

namespace lenslet::tool {

namespace {

// Mean the same in opsets 7 to 13, but for attributes and inputs that newer ones add.
// clang-format off
constexpr auto unchanged = std::to_array<std::string_view>({
    "Abs", "Acos", "Add", "And", "ArgMax", "ArgMin", "Asin", "Atan", "AveragePool", "Cast", "Ceil", "Concat",
    "Constant", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "CumSum", "DepthToSpace", "Div", "Elu", "Equal",
    "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gemm",
    "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "Greater", "GRU", "HardSigmoid", "HardSwish", "Identity",
    "InstanceNormalization", "LeakyRelu", "Less", "Log", "LpNormalization", "LRN", "LSTM", "MatMul", "Max", "MaxPool",
    "Mean", "Min", "Mul", "Neg", "NonMaxSuppression", "NonZero", "Not", "OneHot", "Or", "Pow", "PRelu", "Reciprocal",
    "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "Relu", "Reshape", "RNN", "Round",
    "Selu", "Shape", "Sigmoid", "Sign", "Sin", "Size", "Softplus", "Softsign", "SpaceToDepth", "Sqrt", "Sub", "Sum",
    "Tanh", "ThresholdedRelu", "Tile", "Transpose", "Where", "Xor"});
// clang-format on

[[noreturn]] void refuse(const EditedNode& node, std::int64_t opset, std::string_view why = "") {
  throw Error(
      ErrorKind::unsupported,
      fmt::format("scales per channel need opset {}, and this {} of opset {} is not brought there{}: export the "
                  "model anew",
                  least_opset, node.op, opset, why),
      fmt::format("node {}", node.label()));
}

class Raiser {
 public:
  explicit Raiser(OnnxFile& file) : file_(file) {}

  void raise() {
    for (EditedNode& node : file_.nodes) {
      if (!node.is_standard()) {
        nodes_.push_back(std::move(node));
        continue;
      }
      raise(node);
      nodes_.push_back(std::move(node));
      for (EditedNode& after : after_) nodes_.push_back(std::move(after));
      after_.clear();
    }
    file_.nodes = std::move(nodes_);
    file_.opset = least_opset;
    file_.ir_version = std::max<std::int64_t>(file_.ir_version, 7);  // of ONNX 1.8, the first release with opset 13
  }

 private:
  void raise(EditedNode& node) {
    const std::int64_t opset = file_.opset;
    const std::string op = node.op;
    if (op == "Softmax" || op == "LogSoftmax" || op == "Upsample" || op == "Resize")
      if (!node.has_input(0)) refuse(node, opset, " (without an input)");
    if (op == "BatchNormalization") {
      if (node.integer("spatial", 1) != 1) refuse(node, opset, " (spatial=0)");
      node.remove_attribute("spatial");
    } else if (op == "Softmax" || op == "LogSoftmax") {
      raise_softmax(node);
    } else if (op == "Squeeze" || op == "Unsqueeze" || op == "ReduceSum") {
      integers_to_input(node, "axes", 1);
    } else if (op == "Split") {
      integers_to_input(node, "split", 1);
    } else if (op == "Clip") {
      if (opset < 11) {
        real_to_input(node, "min", 1);
        real_to_input(node, "max", 2);
      }
    } else if (op == "Pad") {
      if (opset < 11) {
        integers_to_input(node, "pads", 1);
        real_to_input(node, "value", 2);
      }
    } else if (op == "Slice") {
      if (opset < 10) {
        integers_to_input(node, "starts", 1);
        integers_to_input(node, "ends", 2);
        integers_to_input(node, "axes", 3);
      }
    } else if (op == "Resize" && opset == 10) {
      raise_resize(node);
    } else if (op == "Upsample") {
      if (const auto scales = node.attribute("scales"))
        file_.add(make_tensor(input_name(node, 1), {static_cast<std::int64_t>(scales->reals.size())}, scales->reals));
      node.remove_attribute("scales");
      raise_resize(node);
    } else if (op == "TopK" ? opset < 11 : op != "Resize" && !is_unchanged(op)) {
      refuse(node, opset);
    }
  }

  static bool is_unchanged(std::string_view op) { return std::ranges::count(unchanged, op) > 0; }

  std::string input_name(EditedNode& node, std::size_t at) {
    if (node.inputs.size() <= at) node.inputs.resize(at + 1);
    return node.inputs[at] = file_.new_name(fmt::format("{}_{}", node.label(), at));
  }

  void integers_to_input(EditedNode& node, std::string_view attribute, std::size_t at) {
    const auto found = node.attribute(attribute);
    if (!found) return;
    file_.add(make_tensor(input_name(node, at), found->integers));
    node.remove_attribute(attribute);
  }

  void real_to_input(EditedNode& node, std::string_view attribute, std::size_t at) {
    const auto found = node.attribute(attribute);
    if (!found) return;
    file_.add(make_tensor(input_name(node, at), {}, {found->real.value_or(0)}));
    node.remove_attribute(attribute);
  }

  static void raise_resize(EditedNode& node) {
    node.op = "Resize";
    node.inputs.resize(2);
    node.inputs.insert(node.inputs.begin() + 1, std::string());  // roi
    node.set_attribute("coordinate_transformation_mode", "asymmetric");
    node.set_attribute("nearest_mode", "floor");
  }

  /// Before opset 13 over all axes from `axis` on: Flatten, Softmax, and a Reshape to the shape that it had.
  void raise_softmax(EditedNode& node) {
    const std::int64_t axis = node.integer("axis", 1);
    const std::string input = node.inputs[0], output = node.outputs[0], base = node.label();
    const std::string flat = file_.new_name(base + "_flat"), result = file_.new_name(base + "_result"),
                      shape = file_.new_name(base + "_shape");
    EditedNode softmax = node;
    softmax.set_attribute("axis", std::int64_t{-1});
    softmax.inputs = {flat};
    softmax.outputs = {result};
    node = {.name = base + "_flatten",
            .op = "Flatten",
            .domain = {},
            .inputs = {input},
            .outputs = {flat},
            .attributes = {},
            .rest = {}};
    node.set_attribute("axis", axis);
    after_.push_back(std::move(softmax));
    after_.push_back({base + "_shape", "Shape", {}, {input}, {shape}, {}, {}});
    after_.push_back({base + "_reshape", "Reshape", {}, {result, shape}, {output}, {}, {}});
  }

  OnnxFile& file_;
  std::vector<EditedNode> nodes_, after_;
};

}  // namespace

void raise_opset(OnnxFile& file) {
  if (file.opset > most_opset)
    throw Error(ErrorKind::unsupported, fmt::format("opset {}: quantised files are written in opsets {} to {}",
                                                    file.opset, least_opset, most_opset));
  const auto reads = file.reads();
  for (EditedNode& node : file.nodes)
    if (node.op == "Dropout" && node.is_standard() && (node.outputs.size() == 1 || !reads.contains(node.outputs[1]))) {
      node.op = "Identity";
      node.attributes.clear();
      node.inputs.resize(1);
      node.outputs.resize(1);
    }
  if (file.opset >= least_opset) return;
  if (file.has_functions)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("scales per channel need opset {}, and the functions in this file of opset {} are not brought "
                    "there: export the model anew, or inline them (onnx.inliner)",
                    least_opset, file.opset));
  Raiser(file).raise();
}

}  // namespace lenslet::tool
