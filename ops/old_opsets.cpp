// Nodes of old opsets with another form today (ONNX's Changelog.md), as Caffe2, MXNet and CNTK wrote them, and
// operators that ONNX had temporarily. Everything else means the same before opset 7.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/expander.h"

namespace lenslet {
namespace {

constexpr int none = Expander::none;

std::int64_t number(std::string_view type) {
  constexpr std::string_view names[] = {
      "FLOAT",  "UINT8", "INT8",    "UINT16", "INT16",  "INT32", "INT64",
      "STRING", "BOOL",  "FLOAT16", "DOUBLE", "UINT32", "UINT64"};  // as TensorProto numbers them, from 1 on
  for (std::size_t i = 0; i < std::size(names); ++i)
    if (names[i] == type) return static_cast<std::int64_t>(i) + 1;
  throw Error(ErrorKind::invalid_model, fmt::format("attribute 'to' is '{}'", type));
}

int rank_of(Expander& e, int x) { return e.add("Shape", {e.add("Shape", {x})}); }

/// `b` with trailing axes of 1 added, so that its axes begin at `axis` of `a`. Ranks are known in shape inference.
int aligned(Expander& e, int a, int b, std::int64_t axis) {
  const int from = axis < 0 ? e.integers({-axis}) : e.add("Sub", {rank_of(e, a), e.integers({axis})});
  const int more = e.add("Max", {e.add("Sub", {from, rank_of(e, b)}), e.integers({0})});
  const std::int64_t one = 1;
  const int ones = e.add("ConstantOfShape", {more}, {{"value", Tensor::of<std::int64_t>({1}, std::span(&one, 1))}});
  const int dims = e.add("Concat", {e.add("Shape", {b}), ones}, {{"axis", std::int64_t{0}}});
  return e.add("Reshape", {b, dims});
}

// Without an axis the second operand is aligned at the end, as today.
void binary(const NodeSpec& spec, Expander& e) {
  const bool broadcasts = e.attributes.flag("broadcast", false), placed = e.attributes.has("axis");
  const std::int64_t axis = e.attributes.integer("axis", 0);
  if (axis < -Shape::max_rank || axis > Shape::max_rank)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute 'axis' is {}", axis));
  const int b = broadcasts && placed ? aligned(e, e.input(0), e.input(1), axis) : e.input(1);
  e.add(spec.name, {e.input(0), b}, {}, e.output());
}

void prelu(const NodeSpec&, Expander& e) {
  e.add("PRelu", {e.input(0), aligned(e, e.input(0), e.input(1), 1)}, {}, e.output());
}

void gemm(const NodeSpec& spec, Expander& e) {
  e.attributes.ignore("broadcast");
  e.add("Gemm", {e.input(0), e.input(1), e.input(2)}, e.taken(spec, {"alpha", "beta", "transA", "transB"}), e.output());
}

void require_test(const NodeSpec& spec, Expander& e) {
  if (!e.attributes.flag("is_test", false) && spec.opset < 7)
    throw Error(ErrorKind::unsupported, "attribute 'is_test' is 0: the node is in training mode");
}

// training_mode 1: with the statistics of x, as weights are standardised when a model is loaded (NFNet, BiT). The rank
// is not known here.
void batch_norm_in_training(const NodeSpec& spec, Expander& e) {
  const std::vector<std::int64_t> all_but_channels{0, 2};
  const auto mean_of = [&](int x) {
    return e.add("ReduceMean", {x}, {{"axes", all_but_channels}, {"keepdims", std::int64_t{1}}});
  };
  const int column = e.integers({-1, 1}), x = e.add("Reshape", {e.input(0), e.integers({0, 0, -1})});
  const int mean = mean_of(x), centred = e.add("Sub", {x, mean}), variance = mean_of(e.add("Mul", {centred, centred}));
  const int epsilon = e.constant(static_cast<float>(e.attributes.real("epsilon", 1e-5)));
  const int scaled = e.add("Mul", {e.add("Div", {centred, e.add("Sqrt", {e.add("Add", {variance, epsilon})})}),
                                   e.add("Reshape", {e.input(1), column})});
  const int y = e.add("Add", {scaled, e.add("Reshape", {e.input(2), column})});
  e.add("Reshape", {y, e.add("Shape", {e.input(0)})}, {}, e.output());
  const double momentum = e.attributes.real("momentum", 0.9);
  for (const int i : {1, 2}) {
    if (e.output(i) == none) continue;
    const int now = e.add("Reshape", {i == 1 ? mean : variance, e.integers({-1})});
    e.add("Add",
          {e.add("Mul", {e.input(2 + i), e.constant(static_cast<float>(momentum))}),
           e.add("Mul", {now, e.constant(static_cast<float>(1 - momentum))})},
          {}, e.output(i));
  }
  if (spec.outputs > 3) throw Error(ErrorKind::invalid_model, "more than 3 outputs");
}

// spatial 0: statistics per element of an image instead of per channel; MXNet also wrote it with statistics per
// channel.
void batch_norm(const NodeSpec& spec, Expander& e) {
  if (spec.opset >= 14 && e.attributes.flag("training_mode", false)) return batch_norm_in_training(spec, e);
  if (spec.opset >= 9) return;
  const bool spatial = e.attributes.flag("spatial", true);
  if (spec.opset >= 7 && spatial) return;
  require_test(spec, e);
  if (spec.outputs > 1) throw Error(ErrorKind::unsupported, "outputs of training mode");
  if (spatial) {
    e.add("BatchNormalization", {e.input(0), e.input(1), e.input(2), e.input(3), e.input(4)},
          e.taken(spec, {"epsilon", "momentum"}), e.output());
    return;
  }
  e.attributes.ignore("momentum");
  const int x = e.input(0), epsilon = e.constant(static_cast<float>(e.attributes.real("epsilon", 1e-5)));
  const int deviation = e.add("Sqrt", {e.add("Add", {e.input(4), epsilon})});
  const int factor = aligned(e, x, e.add("Div", {e.input(1), deviation}), 1);
  const int centred = e.add("Sub", {x, aligned(e, x, e.input(3), 1)});
  e.add("Add", {e.add("Mul", {centred, factor}), aligned(e, x, e.input(2), 1)}, {}, e.output());
}

void dropout(const NodeSpec& spec, Expander& e) {
  require_test(spec, e);
  e.add_to({e.output(), e.output(1)}, "Dropout", {e.input(0)}, e.taken(spec, {"ratio"}), 10);
}

void cast(const NodeSpec&, Expander& e) {
  e.add("Cast", {e.input(0)}, {{"to", number(e.attributes.text("to", ""))}}, e.output());
}

void concat(const NodeSpec&, Expander& e) {
  std::vector<int> all;
  for (int i = 0; i < e.inputs(); ++i) all.push_back(e.input(i));
  e.add("Concat", std::move(all), {{"axis", e.attributes.integer("axis", 1)}}, e.output());
}

void reshape(const NodeSpec&, Expander& e) {
  e.add("Reshape", {e.input(0), e.integers(e.attributes.integers("shape"))}, {}, e.output());
}

void pad(const NodeSpec& spec, Expander& e) {
  AttributeList list = e.taken(spec, {"mode", "value"});
  list.emplace_back("pads", e.attributes.integers("paddings"));
  e.add("Pad", {e.input(0)}, list, e.output(), 2);
}

void split(const NodeSpec& spec, Expander& e) {
  const std::vector<std::int64_t> sizes = e.attributes.integers("split");
  std::vector<int> outputs;
  for (int i = 0; i < static_cast<int>(spec.outputs); ++i) outputs.push_back(e.output(i));
  const int given = e.input(1) != none ? e.add("Cast", {e.input(1)}, {{"to", std::int64_t{7}}})
                    : sizes.empty()    ? none
                                       : e.integers(sizes);
  e.add_to(std::move(outputs), "Split", {e.input(0), given}, e.taken(spec, {"axis"}));
}

// Repeats one axis; both axis and repeats are single numbers of the input's type.
void tile(const NodeSpec&, Expander& e) {
  const auto integer = [&](int x) {
    const int flat = e.add("Reshape", {x, e.integers({})});
    return e.add("Cast", {flat}, {{"to", std::int64_t{7}}});
  };
  const auto scalar = [&](std::int64_t value) {
    return e.constant(Tensor::of<std::int64_t>(Shape{}, std::span(&value, 1)));
  };
  const int rank = e.add("Size", {e.add("Shape", {e.input(0)})});
  const int axes = e.add("Range", {scalar(0), rank, scalar(1)});
  const int is_axis = e.add("Equal", {axes, integer(e.input(2))});
  e.add("Tile", {e.input(0), e.add("Where", {is_axis, integer(e.input(1)), scalar(1)})}, {}, e.output());
}

void selu(const NodeSpec&, Expander& e) {
  e.add("Selu", {e.input(0)},
        {{"alpha", e.attributes.real("alpha", 1.6732)}, {"gamma", e.attributes.real("gamma", 1.0507)}}, e.output());
}

// p is a float.
void lp_pool(const NodeSpec& spec, Expander& e) {
  AttributeList list = e.taken(spec, {"auto_pad", "kernel_shape", "pads", "strides"});
  const double p = e.attributes.real("p", 2);
  if (p != std::clamp(std::round(p), 1.0, 1e6))
    throw Error(ErrorKind::unsupported, fmt::format("attribute 'p' is {}", p));
  list.emplace_back("p", static_cast<std::int64_t>(p));
  e.add(spec.name, {e.input(0)}, list, e.output(), 2);
}

void upsample(const NodeSpec&, Expander& e) {
  const std::string mode = e.attributes.text("mode", "nearest");
  const std::vector<double> scales{1, 1, e.attributes.real("height_scale", 1), e.attributes.real("width_scale", 1)};
  e.add("Upsample", {e.input(0)}, {{"mode", mode == "bilinear" ? "linear" : mode}, {"scales", scales}}, e.output(), 7);
}

// As in ONNX Runtime, over all images together.
void mean_variance(const NodeSpec&, Expander& e) {
  std::vector<std::int64_t> axes{0, 2, 3};
  if (e.attributes.flag("across_channels", false)) axes.push_back(1);
  if (e.attributes.flag("normalize_variance", true))
    e.add("MeanVarianceNormalization", {e.input(0)}, {{"axes", axes}}, e.output());
  else
    e.add("Sub", {e.input(0), e.add("ReduceMean", {e.input(0)}, {{"axes", axes}})}, {}, e.output());
}

float real(Expander& e, std::string_view name, double fallback) {
  return static_cast<float>(e.attributes.real(name, fallback));
}

// alpha * x + beta.
void affine(const NodeSpec&, Expander& e) {
  const int scaled = e.add("Mul", {e.input(0), e.constant(real(e, "alpha", 1))});
  e.add("Add", {scaled, e.constant(real(e, "beta", 0))}, {}, e.output());
}

// x * scale, for an image plus a number per channel.
void scale(const NodeSpec& spec, Expander& e) {
  const int factor = e.constant(real(e, "scale", 1));
  if (spec.name == "Scale") return void(e.add("Mul", {e.input(0), factor}, {}, e.output()));
  const std::vector<double> bias = e.attributes.reals("bias");
  const std::vector<float> by_channel(bias.begin(), bias.end());
  const Tensor tensor =
      Tensor::of<float>({static_cast<std::int64_t>(bias.size()), 1, 1}, std::span<const float>(by_channel));
  e.add("Add", {e.add("Mul", {e.input(0), factor}), e.constant(tensor)}, {}, e.output());
}

// alpha * Tanh(beta * x), or alpha * Softplus(beta * x).
void scaled_unary(const NodeSpec& spec, Expander& e) {
  const int alpha = e.constant(real(e, "alpha", 1)), beta = e.constant(real(e, "beta", 1));
  const int y = e.add(spec.name == "ScaledTanh" ? "Tanh" : "Softplus", {e.add("Mul", {e.input(0), beta})});
  e.add("Mul", {y, alpha}, {}, e.output());
}

constexpr ExpansionCode rows[] = {
    {{"Add", "", 2, 2, 1, "Add, its second operand reshaped where it has an axis", 7}, binary},
    {{"Sub", "", 2, 2, 1, "Sub, likewise", 7}, binary},
    {{"Mul", "", 2, 2, 1, "Mul, likewise", 7}, binary},
    {{"Div", "", 2, 2, 1, "Div, likewise", 7}, binary},
    {{"Pow", "", 2, 2, 1, "Pow, likewise", 7}, binary},
    {{"And", "", 2, 2, 1, "And, likewise", 7}, binary},
    {{"Or", "", 2, 2, 1, "Or, likewise", 7}, binary},
    {{"Xor", "", 2, 2, 1, "Xor, likewise", 7}, binary},
    {{"Equal", "", 2, 2, 1, "Equal, likewise", 7}, binary},
    {{"Greater", "", 2, 2, 1, "Greater, likewise", 7}, binary},
    {{"Less", "", 2, 2, 1, "Less, likewise", 7}, binary},
    {{"PRelu", "", 2, 2, 1, "PRelu of a slope for each channel", 7}, prelu},
    {{"Gemm", "", 3, 3, 1, "Gemm", 7}, gemm},
    {{"BatchNormalization", "", 5, 5, 5,
      "Sub, Mul, Add where spatial is 0; ReduceMean, Sub, Mul, Sqrt, Div, Add in training mode"},
     batch_norm},
    {{"Dropout", "", 1, 1, 2, "Dropout", 7}, dropout},
    {{"Cast", "", 1, 1, 1, "Cast to a type by its name", 6}, cast},
    {{"Concat", "", 1, -1, 1, "Concat, of axis 1 where it has none", 4}, concat},
    {{"Reshape", "", 1, 1, 1, "Reshape to an attribute", 5}, reshape},
    {{"Pad", "", 1, 1, 1, "Pad", 2}, pad},
    {{"Split", "", 1, 2, -1, "Split", 2}, split},
    {{"Tile", "", 3, 3, 1, "Tile along one axis", 6}, tile},
    {{"Selu", "", 1, 1, 1, "Selu of shorter defaults", 6}, selu},
    {{"LpPool", "", 1, 1, 1, "LpPool", 2}, lp_pool},
    {{"GlobalLpPool", "", 1, 1, 1, "GlobalLpPool", 2}, lp_pool},
    {{"Upsample", "", 1, 1, 1, "Upsample", 7}, upsample},
    {{"MeanVarianceNormalization", "", 1, 1, 1, "MeanVarianceNormalization, or Sub of ReduceMean", 9}, mean_variance},
    {{"Affine", "", 1, 1, 1, "Mul, Add"}, affine},
    {{"Scale", "", 1, 1, 1, "Mul"}, scale},
    {{"ImageScaler", "", 1, 1, 1, "Mul, Add"}, scale},
    {{"ScaledTanh", "", 1, 1, 1, "Mul, Tanh, Mul"}, scaled_unary},
    {{"ParametricSoftplus", "", 1, 1, 1, "Mul, Softplus, Mul"}, scaled_unary},
};

}  // namespace

std::span<const ExpansionCode> old_opset_rows() { return rows; }

}  // namespace lenslet
