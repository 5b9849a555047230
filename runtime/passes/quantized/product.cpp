#include "runtime/passes/quantized/product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/passes/epilogue.h"

namespace lenslet {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr const char* no_codes = "its input has no codes of 8 bits";

/// A product in integers: sums of (x - x_zero_point) * weights + bias, in units of the scale of their filter.
struct Product {
  std::string refusal = {};
  ValueId x = no_id;
  std::int32_t x_zero_point = 0;
  float x_scale = 1;
  Tensor weights = {};             ///< int8 [K,C/groups,R,S]
  std::vector<float> scales = {};  ///< one, or one a filter
  std::vector<std::int32_t> bias = {};
  /// Weights minus their zero point exceed int8: each is the sum of two, and x stands twice along C.
  bool twice = false;

  std::int64_t filters() const { return weights.shape()[0]; }
  std::int64_t terms() const { return weights.elems() / filters(); }
  float scale(std::size_t k) const { return scales[scales.size() == 1 ? 0 : k]; }
};

int code_at(const Tensor& codes, std::int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  return codes.dtype() == DType::i8 ? int{codes.values<std::int8_t>()[at]} : int{codes.values<std::uint8_t>()[at]};
}

/// Weights [K,C,...] as the sum of two int8 each, [K,2*C,...].
void split_weights(Product& p, const std::vector<int>& weights, const Shape& shape) {
  p.twice = true;
  p.weights = Tensor(DType::i8, shape.with(1, 2 * shape[1]));
  const std::size_t terms = weights.size() / static_cast<std::size_t>(shape[0]);
  auto* to = p.weights.values<std::int8_t>().data();
  for (std::size_t first = 0; first < weights.size(); first += terms)
    for (const bool rest : {false, true})
      for (std::size_t i = first; i < first + terms; ++i) {
        const int part = std::clamp(weights[i], -128, 127);
        *to++ = static_cast<std::int8_t>(rest ? weights[i] - part : part);
      }
}

/// Sets weights and scales from codes [K,...], or for `columns` [C,K], and their parameters, for all or by filter.
void set_weights(Product& p, const Tensor& codes, const Tensor& scale, const Tensor* zero_point, bool columns,
                 bool grouped = false) {
  const std::int64_t filters = codes.shape()[columns ? 1 : 0],
                     terms = codes.elems() / std::max<std::int64_t>(1, filters);
  const auto fits = [&](const Tensor& parameter) {
    return parameter.elems() == 1 || (parameter.shape().rank() == 1 && parameter.elems() == filters);
  };
  if ((codes.dtype() != DType::i8 && codes.dtype() != DType::u8) || scale.dtype() != DType::f32 || !fits(scale) ||
      codes.elems() == 0 || (zero_point != nullptr && (zero_point->dtype() != codes.dtype() || !fits(*zero_point)))) {
    p.refusal = "its weights are no codes of 8 bits by filter";
    return;
  }
  p.scales.assign(scale.values<float>().begin(), scale.values<float>().end());
  Shape shape = codes.shape();
  if (shape.rank() == 2) shape = Shape{filters, terms, 1, 1};
  const auto zero_of = [&](std::int64_t k) {
    return zero_point == nullptr ? 0 : code_at(*zero_point, zero_point->elems() == 1 ? 0 : k);
  };
  std::vector<std::int64_t> all(static_cast<std::size_t>(filters));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  if (codes.dtype() == DType::i8 && !columns && std::ranges::all_of(all, [&](auto k) { return zero_of(k) == 0; })) {
    p.weights = codes.reshaped(shape);  // shares the file's bytes
    return;
  }
  const int flip = codes.dtype() == DType::i8 ? 0x80 : 0;
  const auto* const from = static_cast<const std::uint8_t*>(codes.data());
  std::vector<int> weights;
  for (const std::int64_t k : all)
    for (std::int64_t i = 0; i < terms; ++i)
      weights.push_back((from[columns ? i * filters + k : k * terms + i] ^ flip) - flip - zero_of(k));
  const auto [least, most] = std::ranges::minmax(weights);
  if (least >= -128 && most <= 127) {
    p.weights = Tensor(DType::i8, shape);
    std::ranges::transform(weights, p.weights.values<std::int8_t>().begin(),
                           [](int weight) { return static_cast<std::int8_t>(weight); });
  } else if (!grouped && most < 255) {
    split_weights(p, weights, shape);
  } else {
    p.refusal = "its weights minus their zero point are no int8: quantise them with 0 in the middle";
  }
}

/// The same of a constant that was dequantised.
void set_weights(Product& p, const Value& w, bool columns, bool grouped = false) {
  const auto& from = w.dequantized;
  if (!w.is_constant() || from == nullptr || integer_attribute(*from->op, "block_size")) {
    p.refusal = "its weights are no constant of 8 bits";
    return;
  }
  const Tensor& scale = from->inputs[1];
  const std::int64_t axis = integer_attribute(*from->op, "axis").value_or(1), rank = w.shape.rank();
  if (scale.elems() != 1 && (axis + rank) % rank != (columns ? 1 : 0)) {
    p.refusal = "the scales of its weights are not by filter";
    return;
  }
  const bool has_zero = from->inputs.size() > 2 && !from->inputs[2].empty();
  set_weights(p, from->inputs[0], scale, has_zero ? &from->inputs[2] : nullptr, columns, grouped);
}

/// Whether a constant has one value for each filter of a row's, or an image's, result: [K] or [M,K], [K,1,1] ...
bool is_by_filter(const Tensor& of, std::int64_t filters, bool image) {
  const int axis = of.shape().rank() - (image ? 3 : 1);
  return of.elems() == filters && axis >= 0 && of.shape()[axis] == filters;
}

/// Rounds a float32 bias to the units of the sums, which may cost an eighth of a step of y. `image`: it is added to an
/// image.
void set_bias(Product& p, const Graph& graph, ValueId id, float y_scale, bool image = false) {
  if (id == no_id || !p.refusal.empty()) return;
  constexpr double most_error = 0.125;
  const Value& value = graph.value(id);
  const auto filters = static_cast<std::size_t>(p.filters());
  const bool by_filter = is_by_filter(value.constant, p.filters(), image);
  if (!value.is_constant() || value.dtype != DType::f32 || !(by_filter || value.constant.elems() == 1)) {
    p.refusal = "its bias is no constant by filter";
    return;
  }
  for (std::size_t k = 0; k < filters; ++k) {
    const double bias = value.constant.values<float>()[by_filter ? k : 0], unit = double{p.x_scale} * p.scale(k);
    const double code = bias == 0 ? 0 : std::nearbyint(bias / unit);
    if (!(std::abs(code) <= std::numeric_limits<std::int32_t>::max()) ||
        !(std::abs(code * unit - bias) <= most_error * y_scale)) {
      p.refusal = "its bias is no multiple of the product of its scales";
      return;
    }
    p.bias.push_back(static_cast<std::int32_t>(code));
  }
}

void set_input(Product& p, const GraphEdit& edit, ValueId x) {
  const auto codes = codes_of(edit, x);
  if (!codes) {
    p.refusal = no_codes;
    return;
  }
  p.x = codes->id;
  p.x_zero_point = codes->linear.zero_point;
  p.x_scale = codes->linear.scale;
}

bool has_groups(const Node& node) { return integer_attribute(*node.op, "group").value_or(1) != 1; }

Product conv_product(const GraphEdit& edit, const Node& node, const Linear& y) {
  Product p;
  const Graph& graph = edit.graph();
  const Epilogue& epilogue = *node.op->epilogue();
  if (graph.value(node.inputs[0]).shape.rank() != 4) p.refusal = "no kernel on codes is 1-D or 3-D";
  if (!takes_more(&epilogue) || !epilogue.scale.empty() || input_of(node, 3) != no_id)
    p.refusal = "its epilogue computes in float32";
  if (p.refusal.empty()) set_input(p, edit, node.inputs[0]);
  if (p.refusal.empty()) set_weights(p, graph.value(node.inputs[1]), false, has_groups(node));
  set_bias(p, graph, input_of(node, 2), y.scale);
  return p;
}

/// Codes [C,K,...] or a parameter [K] as those of the columns of [C,pixels*K], the pixels of a filter outermost.
Tensor by_pixel(const Tensor& of, std::int64_t c, std::int64_t k, std::int64_t pixels) {
  if (of.elems() == 1) return of;
  const std::int64_t from_pixels = of.elems() / (c * k);  // 1: a parameter
  Tensor to(of.dtype(), c == 1 ? Shape{pixels * k} : Shape{c, pixels * k});
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(of.dtype()));
  for (std::int64_t row = 0; row < c; ++row)
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel)
      for (std::int64_t i = 0; i < k; ++i)
        std::memcpy(static_cast<char*>(to.data()) + ((row * pixels + pixel) * k + i) * bytes,
                    static_cast<const char*>(of.data()) + ((row * k + i) * from_pixels + pixel % from_pixels) * bytes,
                    static_cast<std::size_t>(bytes));
  return to;
}

/// A transposed convolution whose filters do not overlap, as a product of each pixel: its block's pixels in turn.
Product transposed_product(GraphEdit& edit, const Node& node, const Linear& y, std::int64_t& block) {
  Product p;
  Graph& graph = edit.graph();
  const Value& w = graph.value(node.inputs[1]);
  const Shape x = graph.value(node.inputs[0]).shape, shape = w.shape, to = graph.value(node.outputs[0]).shape;
  const auto zeros = [&](const char* name) {
    const auto list = integers_attribute(*node.op, name);
    return !list || std::ranges::all_of(*list, [](auto i) { return i == 0; });
  };
  block = shape.rank() == 4 ? shape[2] : 0;
  const Epilogue& epilogue = *node.op->epilogue();
  if (shape.rank() != 4 || shape[3] != block || integers_attribute(*node.op, "strides") != Ints{block, block} ||
      integers_attribute(*node.op, "dilations") != Ints{1, 1} || has_groups(node) || !zeros("pads") ||
      !zeros("output_padding") || to != Shape{x[0], shape[1], x[2] * block, x[3] * block})
    p.refusal = "no kernel on codes has filters that overlap: kernel_shape must equal strides, without pads and groups";
  if (!takes_more(&epilogue) || !epilogue.scale.empty()) p.refusal = "its epilogue computes in float32";
  const auto& from = w.dequantized;
  if (!w.is_constant() || from == nullptr || integer_attribute(*from->op, "block_size"))
    p.refusal = "its weights are no constant of 8 bits";
  if (p.refusal.empty()) set_input(p, edit, node.inputs[0]);
  if (!p.refusal.empty()) return p;
  const std::int64_t pixels = block * block;
  const Tensor& scale = from->inputs[1];
  const bool has_zero = from->inputs.size() > 2 && !from->inputs[2].empty();
  const std::int64_t axis = integer_attribute(*from->op, "axis").value_or(1);
  if (scale.elems() != 1 && ((axis + 4) % 4 != 1 || scale.elems() != shape[1])) {
    p.refusal = "the scales of its weights are not by filter";
    return p;
  }
  const Tensor codes =
      by_pixel(from->inputs[0], shape[0], shape[1], pixels).reshaped(Shape{shape[0], pixels * shape[1]});
  const Tensor zero = has_zero ? by_pixel(from->inputs[2], 1, shape[1], pixels) : Tensor();
  set_weights(p, codes, by_pixel(scale, 1, shape[1], pixels), has_zero ? &zero : nullptr, true);
  ValueId bias = input_of(node, 2);
  if (bias != no_id && graph.value(bias).is_constant() && graph.value(bias).constant.elems() == shape[1] &&
      shape[1] > 1)
    bias =
        edit.add_constant(node.name + ":bias",
                          by_pixel(graph.value(bias).constant, 1, shape[1], pixels).reshaped(Shape{pixels * shape[1]}));
  set_bias(p, graph, bias, y.scale);
  return p;
}

/// The side of a node of two inputs that a node of this type makes for it alone; the other side must be constant.
const Node* over_constant(const GraphEdit& edit, const Node& node, std::string_view type, ValueId& constant) {
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    if (node.inputs.size() != 2 || !edit.merges(node.inputs[side])) continue;
    constant = node.inputs[1 - side];
    const Node* const made_by = edit.producer_node(node.inputs[side]);
    if (made_by->type() == type && constant != no_id && edit.graph().value(constant).is_constant()) return made_by;
  }
  constant = no_id;
  return nullptr;
}

Product matrix_product(const GraphEdit& edit, const Node& node, ValueId bias, const Linear& y) {
  Product p;
  const Graph& graph = edit.graph();
  const bool gemm = node.type() == "Gemm", transposed = integer_attribute(*node.op, "transB").value_or(0) != 0;
  const Value& w = graph.value(node.inputs[1]);
  if (gemm) {
    const Epilogue& epilogue = *node.op->epilogue();
    if (bias == no_id) bias = input_of(node, 2);
    if (integer_attribute(*node.op, "transA").value_or(0) != 0 || attribute<double>(*node.op, "alpha") != 1.0 ||
        (bias != no_id && epilogue.bias_factor != 1) || !epilogue.scale.empty() || !takes_more(&epilogue))
      p.refusal = "it is no plain product plus bias";
  }
  if (p.refusal.empty() && w.shape.rank() != 2) p.refusal = "its right side is no known matrix";
  if (p.refusal.empty()) set_input(p, edit, node.inputs[0]);
  if (p.refusal.empty()) set_weights(p, w, !transposed);
  set_bias(p, graph, bias, y.scale);
  return p;
}

/// The node that multiplies integer sums, as float32, by known scales: `node`, or what it adds `bias` to.
const Node* scaled_sums(const GraphEdit& edit, const Node& node, ValueId& bias) {
  ValueId scale = no_id;
  const Node* const mul = node.type() == "Add" ? over_constant(edit, node, "Mul", bias) : &node;
  return mul != nullptr && mul->type() == "Mul" && over_constant(edit, *mul, "Cast", scale) != nullptr ? mul : nullptr;
}

/// ((x - x_zero) * (w - w_zero) + int32 bias) times a scale, plus a bias: of MatMulInteger, as QGemm is expanded to, or
/// ConvInteger, which becomes `sums`.
Product integer_product(const GraphEdit& edit, const Node& node, const Linear& y, const Node*& sums) {
  Product p;
  const Graph& graph = edit.graph();
  ValueId scale = no_id, bias = no_id, number_bias = no_id;
  const Node& mul = *scaled_sums(edit, node, number_bias);
  sums = over_constant(edit, mul, "Cast", scale);
  sums = edit.merges(sums->inputs[0]) ? edit.producer_node(sums->inputs[0]) : nullptr;
  for (const char* const type : {"MatMulInteger", "ConvInteger"})
    if (sums != nullptr && sums->type() == "Add")
      if (const Node* const below = over_constant(edit, *sums, type, bias); below != nullptr) sums = below;
  const bool image = sums != nullptr && sums->type() == "ConvInteger";
  if (sums == nullptr || (sums->type() != "MatMulInteger" && !image)) {
    p.refusal = "it is no product of integers";
    return p;
  }
  const auto constant = [&](std::size_t i) -> const Tensor* {
    const ValueId id = input_of(*sums, i);
    return id == no_id || !graph.value(id).is_constant() ? nullptr : &graph.value(id).constant;
  };
  const Tensor *const w = constant(1), *const x_zero = constant(2), *const w_zero = constant(3);
  const auto unknown = [&](std::size_t i) { return input_of(*sums, i) != no_id && constant(i) == nullptr; };
  if (w == nullptr || w->shape().rank() != (image ? 4 : 2) || unknown(2) || unknown(3) ||
      (x_zero != nullptr && x_zero->elems() != 1)) {
    p.refusal = "its weights or zero points are not constant";
    return p;
  }
  p.x = sums->inputs[0];
  if (x_zero != nullptr) p.x_zero_point = code_at(*x_zero, 0);
  Tensor scales = graph.value(scale).constant;
  if (image && is_by_filter(scales, w->shape()[0], true)) scales = scales.reshaped(Shape{w->shape()[0]});
  set_weights(p, *w, scales, w_zero, !image, has_groups(*sums));
  set_bias(p, graph, number_bias, y.scale, image);
  if (bias == no_id || !p.refusal.empty()) return p;
  const Tensor& values = graph.value(bias).constant;
  if (values.dtype() != DType::i32 || !is_by_filter(values, p.filters(), image)) {
    p.refusal = "its bias is no constant by filter";
    return p;
  }
  p.bias.resize(static_cast<std::size_t>(p.filters()));
  for (std::size_t k = 0; k < p.bias.size(); ++k) {
    const std::int64_t sum = std::int64_t{p.bias[k]} + values.values<std::int32_t>()[k];
    p.bias[k] = static_cast<std::int32_t>(sum);
    if (p.bias[k] != sum) p.refusal = "its sums may exceed 32 bits";
  }
  return p;
}

/// The convolution with this geometry, or why there is none.
struct Made {
  std::shared_ptr<const Op> op = nullptr;
  std::vector<ValueId> inputs = {};
  std::string refusal = {};
};
Made make_conv(GraphEdit& edit, const std::string& name, const Op& geometry, Product p, const Linear& y,
               const CodeRange& range) {
  if (!p.refusal.empty()) return {.refusal = std::move(p.refusal)};
  if (edit.graph().value(p.x).shape.elems() == 0) return {.refusal = "it has no elements"};
  std::int64_t largest = 0;
  for (const std::int32_t bias : p.bias) largest = std::max(largest, std::abs(std::int64_t{bias}));
  if (p.terms() > (std::numeric_limits<std::int32_t>::max() - largest) / (255 * 128))
    return {.refusal = "its sums may exceed 32 bits"};
  Epilogue epilogue = *geometry.epilogue();
  Epilogue::Requantize to;
  for (std::size_t k = 0; k < static_cast<std::size_t>(p.filters()); ++k) {
    to.multipliers.push_back(p.scale(k) * p.x_scale / y.scale);  // in float32, as QLinearConv
    if (!std::isfinite(to.multipliers.back()) || to.multipliers.back() < 0)
      return {.refusal = "its scales have no quotient in float32"};
  }
  to.zero_point = y.zero_point;
  to.type = y.type;
  to.x_zero_point = p.x_zero_point;
  to.least = range.least;
  to.most = range.most;
  epilogue.requantize = std::move(to);
  if (p.twice)
    p.x = edit.add_node(name + ":twice", make_normalised_op("Concat", {{"axis", std::int64_t{1}}}, 2), {p.x, p.x});
  std::vector<ValueId> inputs{p.x, edit.add_constant(name + ":weights", p.weights)};
  if (!p.bias.empty())
    inputs.push_back(edit.add_constant(
        name + ":bias", Tensor::of<std::int32_t>(Shape{p.filters()}, std::span<const std::int32_t>(p.bias))));
  return {.op = geometry.with_epilogue(std::move(epilogue)), .inputs = std::move(inputs)};
}

ValueId shape_constant(GraphEdit& edit, const Shape& shape) { return edit.add_sizes("shape", shape.dims()); }
std::shared_ptr<const Op> reshape_op() { return make_normalised_op("Reshape", {{"allowzero", std::int64_t{1}}}, 2); }

}  // namespace

void reshape(GraphEdit& edit, NodeId id, ValueId x) {
  const Shape shape = edit.graph().value(edit.graph().node(id).outputs[0]).shape;
  edit.replace(id, reshape_op(), {x, shape_constant(edit, shape)});
}

bool is_product(const GraphEdit& edit, const Node& node) {
  ValueId constant = no_id;
  const std::string_view type = node.type();
  if (type == "Add" && over_constant(edit, node, "MatMul", constant) != nullptr) return true;
  if (type == "Add" || type == "Mul") return scaled_sums(edit, node, constant) != nullptr;
  return type == "Conv" || type == "ConvTranspose" || type == "Gemm" || type == "MatMul";
}

std::string lower_product(GraphEdit& edit, NodeId id, NodeId product, const Linear& y, const CodeRange& range) {
  const Node node = edit.graph().node(product);
  const ValueId old = edit.graph().node(id).inputs[0];
  std::string name = node.name;
  Made made;
  if (node.type() == "Conv") {
    made = make_conv(edit, name, *node.op, conv_product(edit, node, y), y, range);
    if (made.op == nullptr) return made.refusal;
    edit.graph().node(id).name = name;
    edit.replace(id, std::move(made.op), std::move(made.inputs));
  } else if (node.type() == "ConvTranspose") {
    std::int64_t block = 1;
    Product p = transposed_product(edit, node, y, block);
    made = make_conv(edit, name, *make_op("Conv", "", {}, 3), std::move(p), y, range);
    if (made.op == nullptr) return made.refusal;
    const ValueId sums = edit.add_node(name, std::move(made.op), std::move(made.inputs));
    edit.graph().node(id).name = name + ":blocks";
    edit.replace(id, make_op("DepthToSpace", "", {{"blocksize", block}}, 1), {sums});
  } else {
    ValueId bias = no_id;
    const Node* below = node.type() == "Add" ? over_constant(edit, node, "MatMul", bias) : &node;
    const bool of_integers = below == nullptr || below->type() == "Mul";
    Product p = of_integers ? integer_product(edit, node, y, below) : matrix_product(edit, *below, bias, y);
    if (!p.refusal.empty()) return p.refusal;
    if (below->type() == "ConvInteger") {
      made = make_conv(edit, name, *make_normalised_op("Conv", below->op->attributes(), 3), std::move(p), y, range);
      if (made.op == nullptr) return made.refusal;
      edit.graph().node(id).name = name;
      edit.replace(id, std::move(made.op), std::move(made.inputs));
      edit.erase_unread(old);
      return {};
    }
    if (!of_integers) name = below->name;
    // Each row is an image of one pixel, which costs no copy.
    const std::int64_t terms = p.terms() / (p.twice ? 2 : 1);
    const Shape& x = edit.graph().value(p.x).shape;
    const std::int64_t rows = x.elems() / terms;
    if (x.rank() < 1 || x[x.rank() - 1] != terms || rows == 0) return "it has no rows";
    p.x = edit.add_node(name + ":rows", reshape_op(), {p.x, shape_constant(edit, Shape{rows, terms, 1, 1})});
    const ValueId as_rows = p.x;
    made = make_conv(edit, name, *make_op("Conv", "", {}, 3), std::move(p), y, range);
    if (made.op == nullptr) {
      edit.erase_unread(as_rows);
      return made.refusal;
    }
    const ValueId sums = edit.add_node(name, std::move(made.op), std::move(made.inputs));
    edit.graph().node(id).name = name + ":shape";
    reshape(edit, id, sums);
  }
  edit.erase_unread(old);
  return {};
}

std::string lower_affine(GraphEdit& edit, NodeId id, NodeId affine, const Linear& y, const CodeRange& range) {
  const Node node = edit.graph().node(affine);
  const Shape shape = edit.graph().value(node.outputs[0]).shape;
  const std::vector<InputInfo> infos = edit.graph().input_infos(node);
  for (std::size_t side = 0; side < node.inputs.size() && shape.rank() == 4; ++side) {
    if (node.inputs[side] == no_id || !codes_of(edit, node.inputs[side]) || infos[side].type.shape != shape) continue;
    const auto channels = node.op->as_channel_affine(infos, side, shape);
    if (!channels || std::ssize(channels->factor) != shape[1]) continue;
    Product p;
    set_input(p, edit, node.inputs[side]);
    p.weights = Tensor(DType::i8, {shape[1], 1, 1, 1});
    std::vector<float> offsets;
    for (std::size_t c = 0; c < channels->factor.size(); ++c) {
      // A unit of the sums is at least a millionth of a step, so that the offset fits. Of the weights that are as
      // exact, the one for which the offset is nearest to a whole number of units.
      const double factor = channels->factor[c], offset = channels->offset[c];
      const double least = std::ldexp(double{y.scale} / p.x_scale, -20);
      double best = INFINITY;
      p.scales.push_back(0);
      for (int weight = 127; weight >= 64; --weight) {
        const auto scale = static_cast<float>(std::max(std::abs(factor) / weight, least));
        const double units = offset / (double{p.x_scale} * scale), rest = std::abs(units - std::nearbyint(units));
        if (!(rest < best)) continue;
        best = rest;
        p.scales.back() = scale;
      }
      if (!std::isfinite(p.scales.back()) || p.scales.back() == 0) return "its factors are not finite";
      p.weights.values<std::int8_t>()[c] = static_cast<std::int8_t>(std::nearbyint(factor / p.scales.back()));
      offsets.push_back(static_cast<float>(channels->offset[c]));
    }
    const ValueId bias =
        edit.add_constant(node.name + ":offset", Tensor::of<float>(Shape{shape[1]}, std::span<const float>(offsets)));
    set_bias(p, edit.graph(), bias, y.scale);
    const ValueId old = edit.graph().node(id).inputs[0];
    Made made = make_conv(edit, node.name, *make_op("Conv", "", {{"group", shape[1]}}, 3), std::move(p), y, range);
    if (made.op == nullptr) return made.refusal;
    edit.graph().node(id).name = node.name;
    edit.replace(id, std::move(made.op), std::move(made.inputs));
    edit.erase_unread(old);
    return {};
  }
  return no_codes;
}

std::string lower_qlinear_conv(GraphEdit& edit, NodeId id) {
  const Node node = edit.graph().node(id);
  const Graph& graph = edit.graph();
  if (graph.value(node.inputs[0]).shape.rank() != 4) return "no kernel on codes is 1-D or 3-D";
  const auto constant = [&](std::size_t i) { return graph.value(node.inputs[i]).is_constant(); };
  for (const std::size_t i : {1U, 2U, 3U, 4U, 5U, 6U, 7U})
    if (!constant(i)) return "its parameters are not constant";
  const auto tensor = [&](std::size_t i) -> const Tensor& { return graph.value(node.inputs[i]).constant; };
  const auto x = linear_of(graph.value(node.inputs[0]).dtype, tensor(1), &tensor(2));
  const auto y = linear_of(graph.value(node.outputs[0]).dtype, tensor(6), &tensor(7));
  if (!x || !y) return "its scales are no positive numbers";
  Product p{.x = node.inputs[0], .x_zero_point = x->zero_point, .x_scale = x->scale};
  set_weights(p, tensor(3), tensor(4), &tensor(5), false, has_groups(node));
  if (const ValueId bias = input_of(node, 8); bias != no_id) {
    if (!constant(8)) return "its bias is not constant";
    p.bias.assign(tensor(8).values<std::int32_t>().begin(), tensor(8).values<std::int32_t>().end());
  }
  Made made = make_conv(edit, node.name, *make_normalised_op("Conv", node.op->attributes(), 3), std::move(p), *y,
                        {y->least(), y->most()});
  if (made.op == nullptr) return made.refusal;
  edit.replace(id, std::move(made.op), std::move(made.inputs));
  return {};
}

}  // namespace lenslet
