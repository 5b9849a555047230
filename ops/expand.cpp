#include "ops/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lenslet/error.h"
#include "ops/expander.h"

namespace lenslet {
namespace {

constexpr int none = Expander::none;
constexpr std::string_view microsoft = "com.microsoft";

/// Rank implied by a node's window attributes; 4 without any.
int rank_of_window(Expander& e) {
  for (const char* name : {"kernel_shape", "strides", "dilations"})
    if (const std::size_t axes = e.attributes.integers(name).size(); axes != 0) return static_cast<int>(axes) + 2;
  const std::size_t pads = e.attributes.integers("pads").size();
  return pads == 0 ? 4 : static_cast<int>(pads / 2) + 2;
}

/// Moves a value's channels to axis 1, and back to the last one.
class ChannelsLast {
 public:
  ChannelsLast(Expander& e, int rank, bool is_so = true) : e_(e), rank_(rank), is_so_(is_so) {}
  int first(int x) const { return is_so_ ? transposed(x, rank_ - 1, none) : x; }
  /// Target of a result in order N, C, ..., and the step that must follow.
  int before(int output) const { return is_so_ ? e_.value() : output; }
  void after(int made, int output) const {
    if (is_so_) transposed(made, 2, output);
  }

 private:
  /// Rotates the axes behind the first so that `from` becomes axis 1.
  int transposed(int x, int from, int to) const {
    std::vector<std::int64_t> perm{0};
    for (int i = 0; i < rank_ - 1; ++i) perm.push_back((from - 1 + i) % (rank_ - 1) + 1);
    return e_.add("Transpose", {x}, {{"perm", perm}}, to);
  }

  Expander& e_;
  int rank_;
  bool is_so_;
};

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
  // Softmax's version: before 13 all axes from `axis` on count as one.
  const std::int64_t opset = std::clamp<std::int64_t>(e.attributes.integer("opset", 13), 1, 13);
  e.quantize(e.add("Softmax", {e.dequantize(0)}, e.taken(spec, {"axis"}), none, opset), 3, 4);
}

void linear_average_pool(const NodeSpec& spec, Expander& e) {
  const ChannelsLast layout(e, rank_of_window(e), e.attributes.flag("channels_last", false));
  const int x = e.add("DequantizeLinear", {layout.first(e.input(0)), e.input(1), e.input(2)});
  const int mean =
      e.add("AveragePool", {x},
            e.taken(spec, {"auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"}));
  const int y = layout.before(e.output());
  e.add("QuantizeLinear", {mean, e.input(3), e.input(4)}, {}, y);
  layout.after(y, e.output());
}

void linear_global_average_pool(const NodeSpec&, Expander& e) {
  const int x = e.dequantize(0);
  if (!e.attributes.flag("channels_last", false)) return e.quantize(e.add("GlobalAveragePool", {x}), 3, 4);
  // Over all axes except the first and the last, for any rank.
  const int others = e.add("Size", {e.add("Shape", {e.input(0)}, {{"start", std::int64_t{1}}}, none, 15)});
  const int one = e.constant(Tensor::of<std::int64_t>(Shape{}, {1}));
  const int axes = e.add("Range", {one, others, one});
  e.quantize(e.add("ReduceMean", {x, axes}, {{"noop_with_empty_axes", std::int64_t{1}}}, none, 18), 3, 4);
}

void linear_conv(const NodeSpec& spec, Expander& e) {
  const ChannelsLast layout(e, rank_of_window(e), e.attributes.flag("channels_last", false));
  std::vector<int> inputs{layout.first(e.input(0))};
  for (int i = 1; i < 9; ++i) inputs.push_back(e.input(i));
  const int y = layout.before(e.output());
  e.add("QLinearConv", std::move(inputs),
        e.taken(spec, {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}), y);
  layout.after(y, e.output());
}

void channels_last_max_pool(const NodeSpec& spec, Expander& e) {
  const ChannelsLast layout(e, rank_of_window(e));
  const int y = e.add("MaxPool", {layout.first(e.input(0))},
                      e.taken(spec, {"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"}));
  layout.after(y, e.output());
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

// y = quantized(alpha * a_scale * b_scale * (A' * B' + C)) from int32 accumulators; not quantised without y_scale.
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
void grid_sample(const NodeSpec& spec, Expander& e) {
  e.add("GridSample", {e.input(0), e.input(1)}, e.taken(spec, {"align_corners", "mode", "padding_mode"}), e.output(),
        16);
}
void pad(const NodeSpec& spec, Expander& e) {
  e.add("Pad", {e.input(0), e.input(1), e.input(2)}, e.taken(spec, {"mode"}), e.output());
}
void trilu(const NodeSpec& spec, Expander& e) {
  e.add("Trilu", {e.input(0), e.input(1)}, e.taken(spec, {"upper"}), e.output(), 14);
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

// The activation's attributes are those of its operator.
void fused_gemm(const NodeSpec& spec, Expander& e) {
  const std::string activation = e.attributes.text("activation", "");
  AttributeList list;
  for (const char* name : {"alpha", "beta", "gamma"}) {
    const std::string own = fmt::format("activation_{}", name);
    if (e.attributes.has(own)) list.emplace_back(name, e.attributes.real(own, 0));
  }
  constexpr std::string_view known[] = {"Relu", "Sigmoid",  "Tanh", "LeakyRelu", "HardSigmoid",
                                        "Elu",  "Softplus", "Selu", "Softsign",  "ThresholdedRelu"};
  if (!activation.empty() && std::ranges::find(known, std::string_view(activation)) == std::end(known))
    throw Error(ErrorKind::unsupported, fmt::format("attribute 'activation' is '{}'", activation));
  const int y = e.add("Gemm", {e.input(0), e.input(1), e.input(2)},
                      e.taken(spec, {"alpha", "beta", "transA", "transB"}), activation.empty() ? e.output() : none);
  if (!activation.empty()) e.add(activation, {y}, list, e.output());
}

void transpose_matmul(const NodeSpec& spec, Expander& e) {
  e.add("FusedMatMul", {e.input(0), e.input(1)}, e.taken(spec, {"alpha", "transA", "transB"}), e.output(), 1,
        microsoft);
}

// Normalises the sum of input, skip and bias; the sum is an output, too.
void skip_normalization(const NodeSpec& spec, Expander& e) {
  const bool centred = spec.name == "SkipLayerNormalization";
  const int bias = e.input(centred ? 4 : 3), sum_output = e.output(3);
  int sum = e.add("Add", {e.input(0), e.input(1)}, {}, bias == none ? sum_output : none);
  if (bias != none) sum = e.add("Add", {sum, bias}, {}, sum_output);
  const AttributeList list{{"epsilon", e.attributes.real("epsilon", 1e-12)}};
  if (centred)
    e.add_to({e.output(), e.output(1), e.output(2)}, "LayerNormalization", {sum, e.input(2), e.input(3)}, list, 17);
  else
    e.add("RMSNormalization", {sum, e.input(2)}, list, e.output(), 23);
}

void simplified_normalization(const NodeSpec& spec, Expander& e) {
  e.add("RMSNormalization", {e.input(0), e.input(1)}, e.taken(spec, {"axis", "epsilon", "stash_type"}), e.output(), 23);
}

// x * Sigmoid(alpha * x).
void quick_gelu(const NodeSpec&, Expander& e) {
  const double alpha = e.attributes.real("alpha", 1.702);
  const int scaled = alpha == 1 ? e.input(0) : e.add("Mul", {e.input(0), e.constant(static_cast<float>(alpha))});
  e.add("Mul", {e.input(0), e.add("Sigmoid", {scaled})}, {}, e.output());
}

// Gelu of x, of x plus a bias, or of a product plus a bias.
void gelu_of_sum(const NodeSpec& spec, Expander& e) {
  const bool fast = spec.name != "Gelu" && spec.name != "BiasGelu", multiplies = spec.name == "GemmFastGelu";
  const int data = multiplies ? e.add("MatMul", {e.input(0), e.input(1)}) : e.input(0);
  const int bias = e.input(multiplies ? 2 : 1), x = bias == none ? data : e.add("Add", {data, bias});
  e.add("Gelu", {x}, {{"approximate", std::string(fast ? "tanh" : "none")}}, e.output(), 20);
}

// As in ONNX's function body of the operator.
void dynamic_quantize_to(Expander& e, int x, int y, int scale, int zero_point) {
  const AttributeList all{{"keepdims", std::int64_t{0}}};
  const int zero = e.constant(0.0F), most = e.constant(255.0F);
  const int low = e.add("Min", {e.add("ReduceMin", {x}, all), zero});
  const int high = e.add("Max", {e.add("ReduceMax", {x}, all), zero});
  scale = e.add("Div", {e.add("Sub", {high, low}), most}, {}, scale);
  const int offset = e.add("Div", {e.add("Sub", {zero, low}), scale});
  const int rounded = e.add("Round", {e.add("Clip", {offset, zero, most})});
  zero_point = e.add("Cast", {rounded}, {{"to", std::int64_t{2}}}, zero_point);
  e.add("QuantizeLinear", {x, scale, zero_point}, {}, y);
}
void dynamic_quantize(const NodeSpec&, Expander& e) {
  dynamic_quantize_to(e, e.input(0), e.output(), e.output(1), e.output(2));
}

/// (A - a_zero) * (B - b_zero) * (a_scale * b_scale) + bias.
struct ScaledProduct {
  int a, a_scale, a_zero, b, b_scale, b_zero, bias;
  void add_to(Expander& e) const {
    const int sums = e.add("Cast", {e.add("MatMulInteger", {a, b, a_zero, b_zero})}, {{"to", std::int64_t{1}}});
    const int scale = e.add("Mul", {a_scale, b_scale});
    const int y = e.add("Mul", {sums, scale}, {}, bias == none ? e.output() : none);
    if (bias != none) e.add("Add", {y, bias}, {}, e.output());
  }
};
void dynamic_matmul(const NodeSpec&, Expander& e) {
  const int a = e.value(), scale = e.value(), zero = e.value();
  dynamic_quantize_to(e, e.input(0), a, scale, zero);
  ScaledProduct{a, scale, zero, e.input(1), e.input(2), e.input(3), e.input(4)}.add_to(e);
}
void matmul_to_float(const NodeSpec&, Expander& e) {
  ScaledProduct{e.input(0), e.input(2), e.input(4), e.input(1), e.input(3), e.input(5), e.input(6)}.add_to(e);
}

constexpr ExpansionCode rows[] = {
    {{"DynamicQuantizeLinear", "", 1, 1, 3, "its function body in ONNX"}, dynamic_quantize},
    {{"FusedConv", microsoft, 2, 4, 1, "Conv, Add, the activation"}, fused_conv},
    {{"NhwcMaxPool", microsoft, 1, 1, 1, "MaxPool between Transposes"}, channels_last_max_pool},
    {{"FusedGemm", microsoft, 2, 3, 1, "Gemm, the activation"}, fused_gemm},
    {{"TransposeMatMul", microsoft, 2, 2, 1, "FusedMatMul"}, transpose_matmul},
    {{"GemmFastGelu", microsoft, 2, 3, 1, "MatMul, Add, Gelu by tanh"}, gelu_of_sum},
    {{"SkipLayerNormalization", microsoft, 3, 5, 4, "Add, LayerNormalization"}, skip_normalization},
    {{"SkipSimplifiedLayerNormalization", microsoft, 3, 4, 4, "Add, RMSNormalization"}, skip_normalization},
    {{"SimplifiedLayerNormalization", "", 2, 2, 1, "RMSNormalization"}, simplified_normalization},
    {{"DynamicQuantizeMatMul", microsoft, 3, 5, 1, "DynamicQuantizeLinear, MatMulInteger, Cast, Mul, Add"},
     dynamic_matmul},
    {{"MatMulIntegerToFloat", microsoft, 4, 7, 1, "MatMulInteger, Cast, Mul, Add"}, matmul_to_float},
    {{"GridSample", microsoft, 2, 2, 1, "ONNX's"}, grid_sample},
    {{"Pad", microsoft, 2, 3, 1, "ONNX's"}, pad},
    {{"Trilu", microsoft, 1, 2, 1, "ONNX's"}, trilu},
    {{"Gelu", microsoft, 1, 1, 1, "ONNX's"}, gelu_of_sum},
    {{"BiasGelu", microsoft, 2, 2, 1, "Add, Gelu"}, gelu_of_sum},
    {{"FastGelu", microsoft, 1, 2, 1, "Add, Gelu by tanh"}, gelu_of_sum},
    {{"QuickGelu", microsoft, 1, 1, 1, "Mul, Sigmoid, Mul"}, quick_gelu},
    {{"QGemm", microsoft, 6, 9, 1, "MatMulInteger, Add, Mul, QuantizeLinear"}, linear_gemm},
    {{"QLinearAdd", microsoft, 7, 8, 1, "Add between DequantizeLinear and QuantizeLinear"}, linear_binary<add_name>},
    {{"QLinearMul", microsoft, 7, 8, 1, "Mul, likewise"}, linear_binary<mul_name>},
    {{"QLinearConv", microsoft, 8, 9, 1, "ONNX's, between Transposes where channels are last"}, linear_conv},
    {{"QLinearAveragePool", microsoft, 4, 5, 1,
      "AveragePool, likewise, and between Transposes where channels are last"},
     linear_average_pool},
    {{"QLinearGlobalAveragePool", microsoft, 5, 5, 1, "GlobalAveragePool, or ReduceMean, likewise"},
     linear_global_average_pool},
    {{"QLinearConcat", microsoft, 5, -1, 1, "Concat, likewise"}, linear_concat},
    {{"QLinearLeakyRelu", microsoft, 4, 5, 1, "LeakyRelu, likewise"}, linear_leaky_relu},
    {{"QLinearSigmoid", microsoft, 4, 5, 1, "Sigmoid, likewise"}, linear_sigmoid},
    {{"QLinearSoftmax", microsoft, 5, 5, 1, "Softmax, likewise"}, linear_softmax},
    {{"QLinearWhere", microsoft, 9, 9, 1, "Where, likewise"}, linear_where},
    {{"QuantizeLinear", microsoft, 2, 3, 1, "ONNX's"}, quantize_linear},
    {{"DequantizeLinear", microsoft, 2, 3, 1, "ONNX's"}, dequantize_linear},
};

template <typename F>
void for_each_row(const F& f) {
  for (const std::span<const ExpansionCode> list : {std::span<const ExpansionCode>(rows), old_opset_rows()})
    for (const ExpansionCode& row : list) f(row);
}

}  // namespace

std::string expansion_table() {
  std::string text = "| operator | domain | read as |\n|---|---|---|\n";
  for_each_row([&](const ExpansionCode& row) {
    const std::string until = row.before == 0 ? "" : fmt::format(" before opset {}", row.before);
    text += fmt::format("| {}{} | {} | {} |\n", row.name, until, row.domain.empty() ? "ai.onnx" : row.domain, row.as);
  });
  return text;
}

const ExpansionRow* find_expansion(std::string_view name, std::string_view domain, std::int64_t opset) {
  const ExpansionRow* found = nullptr;
  for_each_row([&](const ExpansionCode& row) {
    if (row.name == name && row.domain == domain && (row.before == 0 || opset < row.before)) found = &row;
  });
  return found;
}

Expansion expand(const ExpansionRow& row, const NodeSpec& spec, const std::vector<bool>& given) {
  Expander expander(spec, given);
  static_cast<const ExpansionCode&>(row).expand(spec, expander);
  if (!expander.made.steps.empty()) expander.attributes.finish();
  return std::move(expander.made);
}

}  // namespace lenslet
