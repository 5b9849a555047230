#include "ops/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lenslet/error.h"

namespace lenslet {
namespace {

constexpr int none = -1;
constexpr std::string_view microsoft = "com.microsoft";

/// A node being taken apart; operators are made as files of opset 13 have them.
class Expander {
 public:
  AttributeReader attributes;

  Expander(const NodeSpec& spec, const std::vector<bool>& given)
      : attributes(spec.attributes), given_(given), outputs_(static_cast<int>(spec.outputs)) {
    made.values = static_cast<int>(spec.inputs) + outputs_;
  }

  int inputs() const { return static_cast<int>(given_.size()); }
  int input(int i) const { return i < inputs() && given_[static_cast<std::size_t>(i)] ? i : none; }
  int output(int i = 0) const { return i < outputs_ ? inputs() + i : none; }
  int constant(Tensor tensor) {
    made.constants.push_back({made.values, std::move(tensor)});
    return made.values++;
  }
  int constant(float value) { return constant(Tensor::of<float>(Shape{}, {value})); }

  /// Returns `to`, or a value of its own.
  int add(std::string_view op, std::vector<int> inputs, const AttributeList& list = {}, int to = none,
          std::int64_t opset = 13) {
    while (!inputs.empty() && inputs.back() == none) inputs.pop_back();
    if (to == none) to = made.values++;
    std::shared_ptr<const Op> step = make_op(op, "", list, inputs.size(), 1, opset);
    made.steps.push_back({std::move(step), std::move(inputs), {to}});
    return to;
  }
  /// Of three inputs in a row: x, its scale, its zero point.
  int dequantize(int x) { return add("DequantizeLinear", {input(x), input(x + 1), input(x + 2)}); }
  void quantize(int x, int scale, int zero) { add("QuantizeLinear", {x, input(scale), input(zero)}, {}, output()); }

  /// Attributes of these names, as they are, for a step that knows them.
  AttributeList taken(const NodeSpec& spec, std::initializer_list<std::string_view> names) {
    AttributeList list;
    for (const auto& entry : spec.attributes)
      if (std::find(names.begin(), names.end(), entry.first) != names.end()) list.push_back(entry);
    for (const std::string_view name : names) attributes.ignore(name);
    return list;
  }
  void refuse_channels_last() {
    if (attributes.flag("channels_last", false))
      throw Error(ErrorKind::unsupported, "attribute 'channels_last' is not supported");
  }

  Expansion made;

 private:
  std::vector<bool> given_;
  int outputs_;
};

using Expand = void (*)(const NodeSpec&, Expander&);

template <const char* op>
void linear_binary(const NodeSpec&, Expander& e) {
  const int a = e.dequantize(0), b = e.dequantize(3);
  e.quantize(e.add(op, {a, b}), 6, 7);
}
constexpr char add_name[] = "Add", mul_name[] = "Mul";

void linear_sigmoid(const NodeSpec&, Expander& e) { e.quantize(e.add("Sigmoid", {e.dequantize(0)}), 3, 4); }

void linear_leaky_relu(const NodeSpec& spec, Expander& e) {
  e.quantize(e.add("LeakyRelu", {e.dequantize(0)}, e.taken(spec, {"alpha"})), 3, 4);
}

void linear_softmax(const NodeSpec& spec, Expander& e) {
  // The version of Softmax: before 13 all axes from `axis` on are one.
  const std::int64_t opset = std::clamp<std::int64_t>(e.attributes.integer("opset", 13), 1, 13);
  e.quantize(e.add("Softmax", {e.dequantize(0)}, e.taken(spec, {"axis"}), none, opset), 3, 4);
}

void linear_average_pool(const NodeSpec& spec, Expander& e) {
  e.refuse_channels_last();
  const AttributeList list =
      e.taken(spec, {"auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"});
  e.quantize(e.add("AveragePool", {e.dequantize(0)}, list), 3, 4);
}

void linear_global_average_pool(const NodeSpec&, Expander& e) {
  e.refuse_channels_last();
  e.quantize(e.add("GlobalAveragePool", {e.dequantize(0)}), 3, 4);
}

void linear_concat(const NodeSpec& spec, Expander& e) {
  if (e.inputs() % 3 != 2) throw Error(ErrorKind::invalid_model, "the inputs are no triples after the first two");
  std::vector<int> joined;
  for (int i = 2; i < e.inputs(); i += 3) joined.push_back(e.dequantize(i));
  e.quantize(e.add("Concat", std::move(joined), e.taken(spec, {"axis"})), 0, 1);
}

void linear_where(const NodeSpec&, Expander& e) {
  const int x = e.dequantize(1), y = e.dequantize(4);
  e.quantize(e.add("Where", {e.input(0), x, y}), 7, 8);
}

// y = quantized(alpha * a_scale * b_scale * (A' * B' + C)), of int32 sums; not quantised without y_scale.
void linear_gemm(const NodeSpec&, Expander& e) {
  const auto side = [&](const char* flag, int input) {
    const std::vector<std::int64_t> swapped{1, 0};
    return e.attributes.flag(flag, false) ? e.add("Transpose", {input}, {{"perm", swapped}}) : input;
  };
  const int a = side("transA", e.input(0)), b = side("transB", e.input(3));
  int sums = e.add("MatMulInteger", {a, b, e.input(2), e.input(5)});
  if (e.input(6) != none) sums = e.add("Add", {sums, e.input(6)});
  const int alpha = e.constant(static_cast<float>(e.attributes.real("alpha", 1)));
  const int scale = e.add("Mul", {e.add("Mul", {alpha, e.input(1)}), e.input(4)});
  const int real = e.add("Cast", {sums}, {{"to", std::int64_t{1}}});
  if (e.input(7) == none)
    e.add("Mul", {real, scale}, {}, e.output());
  else
    e.quantize(e.add("Mul", {real, scale}), 7, 8);
}

void same(const NodeSpec& spec, Expander& e, std::string_view op) {
  e.add(op, {e.input(0), e.input(1), e.input(2)}, e.taken(spec, {"axis"}), e.output());
}
void quantize_linear(const NodeSpec& spec, Expander& e) { same(spec, e, "QuantizeLinear"); }
void dequantize_linear(const NodeSpec& spec, Expander& e) { same(spec, e, "DequantizeLinear"); }

void fused_conv(const NodeSpec& spec, Expander& e) {
  const std::string activation = e.attributes.text("activation", "");
  const std::vector<double> parameters = e.attributes.reals("activation_params");
  const AttributeList geometry = e.taken(spec, {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"});
  const auto parameter = [&](std::size_t i, double fallback) {
    return i < parameters.size() ? parameters[i] : fallback;
  };
  const bool adds = e.input(3) != none, activates = !activation.empty();
  int y = e.add("Conv", {e.input(0), e.input(1), e.input(2)}, geometry, adds || activates ? none : e.output());
  if (adds) y = e.add("Add", {y, e.input(3)}, {}, activates ? none : e.output());
  if (!activates) return;
  if (activation == "Relu" || activation == "Sigmoid" || activation == "Tanh")
    e.add(activation, {y}, {}, e.output());
  else if (activation == "LeakyRelu")
    e.add(activation, {y}, {{"alpha", parameter(0, 0.01)}}, e.output());
  else if (activation == "HardSigmoid")
    e.add(activation, {y}, {{"alpha", parameter(0, 0.2)}, {"beta", parameter(1, 0.5)}}, e.output());
  else if (activation == "Clip" && parameters.size() == 2)
    e.add(activation, {y, e.constant(static_cast<float>(parameters[0])), e.constant(static_cast<float>(parameters[1]))},
          {}, e.output());
  else
    throw Error(ErrorKind::unsupported, fmt::format("attribute 'activation' is '{}'", activation));
}

// x * Sigmoid(alpha * x).
void quick_gelu(const NodeSpec&, Expander& e) {
  const double alpha = e.attributes.real("alpha", 1.702);
  const int scaled = alpha == 1 ? e.input(0) : e.add("Mul", {e.input(0), e.constant(static_cast<float>(alpha))});
  e.add("Mul", {e.input(0), e.add("Sigmoid", {scaled})}, {}, e.output());
}

// Gelu of x, or of x and a bias.
void gelu_of_sum(const NodeSpec& spec, Expander& e) {
  const int x = e.input(1) == none ? e.input(0) : e.add("Add", {e.input(0), e.input(1)});
  const bool fast = spec.name == "FastGelu";
  e.add("Gelu", {x}, {{"approximate", std::string(fast ? "tanh" : "none")}}, e.output(), 20);
}

// As the operator's function body in ONNX has it.
void dynamic_quantize(const NodeSpec&, Expander& e) {
  const AttributeList all{{"keepdims", std::int64_t{0}}};
  const int zero = e.constant(0.0F), most = e.constant(255.0F);
  const int low = e.add("Min", {e.add("ReduceMin", {e.input(0)}, all), zero});
  const int high = e.add("Max", {e.add("ReduceMax", {e.input(0)}, all), zero});
  const int scale = e.add("Div", {e.add("Sub", {high, low}), most}, {}, e.output(1));
  const int offset = e.add("Div", {e.add("Sub", {zero, low}), scale});
  const int rounded = e.add("Round", {e.add("Clip", {offset, zero, most})});
  const int zero_point = e.add("Cast", {rounded}, {{"to", std::int64_t{2}}}, e.output(2));
  e.add("QuantizeLinear", {e.input(0), scale, zero_point}, {}, e.output());
}

struct Row : ExpansionRow {
  Expand expand = nullptr;
};

constexpr Row rows[] = {
    {{"DynamicQuantizeLinear", "", 1, 1, 3, "its function body in ONNX"}, dynamic_quantize},
    {{"FusedConv", microsoft, 2, 4, 1, "Conv, Add, the activation"}, fused_conv},
    {{"Gelu", microsoft, 1, 1, 1, "ONNX's"}, gelu_of_sum},
    {{"BiasGelu", microsoft, 2, 2, 1, "Add, Gelu"}, gelu_of_sum},
    {{"FastGelu", microsoft, 1, 2, 1, "Add, Gelu by tanh"}, gelu_of_sum},
    {{"QuickGelu", microsoft, 1, 1, 1, "Mul, Sigmoid, Mul"}, quick_gelu},
    {{"QGemm", microsoft, 6, 9, 1, "MatMulInteger, Add, Mul, QuantizeLinear"}, linear_gemm},
    {{"QLinearAdd", microsoft, 7, 8, 1, "Add between DequantizeLinear and QuantizeLinear"}, linear_binary<add_name>},
    {{"QLinearMul", microsoft, 7, 8, 1, "Mul, likewise"}, linear_binary<mul_name>},
    {{"QLinearAveragePool", microsoft, 4, 5, 1, "AveragePool, likewise"}, linear_average_pool},
    {{"QLinearGlobalAveragePool", microsoft, 5, 5, 1, "GlobalAveragePool, likewise"}, linear_global_average_pool},
    {{"QLinearConcat", microsoft, 5, -1, 1, "Concat, likewise"}, linear_concat},
    {{"QLinearLeakyRelu", microsoft, 4, 5, 1, "LeakyRelu, likewise"}, linear_leaky_relu},
    {{"QLinearSigmoid", microsoft, 4, 5, 1, "Sigmoid, likewise"}, linear_sigmoid},
    {{"QLinearSoftmax", microsoft, 5, 5, 1, "Softmax, likewise"}, linear_softmax},
    {{"QLinearWhere", microsoft, 9, 9, 1, "Where, likewise"}, linear_where},
    {{"QuantizeLinear", microsoft, 2, 3, 1, "ONNX's"}, quantize_linear},
    {{"DequantizeLinear", microsoft, 2, 3, 1, "ONNX's"}, dequantize_linear},
};

}  // namespace

std::string expansion_table() {
  std::string text = "| operator | domain | read as |\n|---|---|---|\n";
  for (const Row& row : rows)
    text += fmt::format("| {} | {} | {} |\n", row.name, row.domain.empty() ? "ai.onnx" : row.domain, row.as);
  return text;
}

const ExpansionRow* find_expansion(std::string_view name, std::string_view domain) {
  for (const Row& row : rows)
    if (row.name == name && row.domain == domain) return &row;
  return nullptr;
}

Expansion expand(const ExpansionRow& row, const NodeSpec& spec, const std::vector<bool>& given) {
  Expander expander(spec, given);
  static_cast<const Row&>(row).expand(spec, expander);
  expander.attributes.finish();
  return std::move(expander.made);
}

}  // namespace lenslet
