// Step of lower_quantized: what is computed between codes becomes an operator on codes, in place of its QuantizeLinear.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/passes/quantized/linear.h"
#include "runtime/passes/quantized/product.h"

namespace lenslet {
namespace {

using Ints = std::vector<std::int64_t>;

/// The range of y's codes under the activations between `x` and its QuantizeLinear; `x` becomes their input.
std::optional<CodeRange> take_activations(const GraphEdit& edit, ValueId& x, const Linear& y) {
  CodeRange range{y.least(), y.most()};
  while (edit.merges(x)) {
    const Node& node = *edit.producer_node(x);
    const auto activation = node.op->as_activation(edit.graph().input_infos(node));
    if (!activation || node.inputs[0] == no_id) break;
    float low = 0, high = INFINITY;
    if (activation->kind == Activation::Kind::clip) {
      low = activation->alpha;
      high = activation->beta;
    } else if (activation->kind != Activation::Kind::relu) {
      break;
    }
    if (std::isnan(low) || std::isnan(high)) return std::nullopt;
    // Rounding keeps the order, so codes are clamped as numbers are. This one comes before those seen so far.
    const auto inner = [&](float bound) { return std::clamp(y.code(std::min(bound, high)), range.least, range.most); };
    range = {inner(low), inner(high)};
    x = node.inputs[0];
  }
  return range;
}

void append(AttributeList& list, std::string name, const Linear& codes) {
  list.emplace_back(name + "_scale", double{codes.scale});
  list.emplace_back(name + "_zero_point", std::int64_t{codes.zero_point});
}
void append(AttributeList& list, const Linear& y, const CodeRange& range) {
  append(list, "y", y);
  list.emplace_back("stored_type", std::string(to_string(y.type)));
  list.emplace_back("stored_range", Ints{range.least, range.most});
}

class Lowering {
 public:
  Lowering(GraphEdit& edit, Refusals& refusals) : edit_(edit), refusals_(refusals) {}

  /// `id` is a QuantizeLinear.
  void lower(NodeId id, const Linear& y) {
    ValueId x = graph().node(id).inputs[0];
    const auto range = take_activations(edit_, x, y);
    const NodeId made_by = edit_.producer(x);
    if (!range || made_by == no_id) return;
    const Node& node = graph().node(made_by);
    const std::string_view type = node.type();
    const bool is_sum = type == "Add" || type == "Sum" || type == "Sub", is_pool = means_image(node);
    if (!edit_.merges(x)) {
      refusals_[made_by] = why_not_merged(x);
      return;
    }
    if (is_product(edit_, node)) {
      if (std::string why = lower_product(edit_, id, made_by, y, *range); !why.empty()) refusals_[made_by] = why;
      return;
    }
    Lowered lowered;
    if (is_sum || type == "Mul")
      lowered = binary(node, is_sum, y, *range);
    else if (is_pool || type == "AveragePool")
      lowered = mean(node, y, *range, !is_pool);
    else if (type == "Resize" || type == "Upsample")
      lowered = resize(node, y, *range);
    if (lowered.op == nullptr) {
      if (lower_affine(edit_, id, made_by, y, *range).empty()) return;
      if (!lowered.refusal.empty()) refusals_[made_by] = lowered.refusal;
      blame_function(made_by);
      return;
    }
    const ValueId old = graph().node(id).inputs[0];
    graph().node(id).name = graph().node(made_by).name;
    if (graph().value(graph().node(id).outputs[0]).shape == infer_types(*lowered.op, infos(lowered.inputs))[0].shape) {
      edit_.replace(id, std::move(lowered.op), std::move(lowered.inputs));
    } else {  // ReduceMean without the axes that it reduced
      const ValueId mean = edit_.add_node(graph().node(id).name, std::move(lowered.op), std::move(lowered.inputs));
      graph().node(id).name += ":shape";
      reshape(edit_, id, mean);
    }
    edit_.erase_unread(old);
  }

 private:
  struct Lowered {
    std::shared_ptr<const Op> op = nullptr;
    std::vector<ValueId> inputs = {};
    std::string refusal = {};
  };
  Graph& graph() { return edit_.graph(); }
  std::vector<InputInfo> infos(const std::vector<ValueId>& inputs) {
    return graph().input_infos({.name = {}, .op = nullptr, .inputs = inputs, .outputs = {}});
  }

  /// Why a value that is quantised has no codes, if it has several readers.
  std::string why_not_merged(ValueId x) {
    const auto readers = graph().readers()[static_cast<std::size_t>(x)];
    const bool all_quantise = !edit_.is_output(x) && std::ranges::all_of(readers, [&](NodeId reader) {
      return graph().node(reader).type() == "QuantizeLinear";
    });
    return all_quantise ? "its result is quantised with several scales: give its readers one"
                        : "its result is read in float32, too: quantise it for all readers";
  }

  /// Names the function between a product and the QuantizeLinear, if `made_by` ends one.
  void blame_function(NodeId made_by) {
    for (NodeId at = made_by; graph().node(at).op->elementwise_inputs() != 0;) {
      const Node& node = graph().node(at);
      const auto inner = std::ranges::find_if(node.inputs, [&](ValueId id) {
        return id != no_id && !graph().value(id).is_constant() && edit_.producer(id) != no_id;
      });
      if (inner == node.inputs.end()) return;
      at = edit_.producer(*inner);
      if (is_product(edit_, graph().node(at)))
        refusals_[at] =
            fmt::format("no kernel on codes computes {} with it: quantise its result before that", node.type());
    }
  }

  Lowered binary(const Node& node, bool is_sum, const Linear& y, const CodeRange& range) {
    if (node.inputs.size() != 2) return {};
    std::vector<ValueId> inputs;
    AttributeList attributes;
    for (const std::size_t i : {0U, 1U}) {
      auto codes = codes_of(edit_, node.inputs[i]);
      if (!codes) codes = constant_codes(edit_, node.inputs[i]);
      if (!codes) return {.refusal = "an input has no codes of 8 bits"};
      if (i == 1 && node.type() == "Sub") codes = negated(node.name, *codes);
      inputs.push_back(codes->id);
      append(attributes, i == 0 ? "a" : "b", codes->linear);
    }
    append(attributes, y, range);
    return {.op = make_normalised_op(is_sum ? "QuantizedAdd" : "QuantizedMul", attributes, 2), .inputs = inputs};
  }

  /// Codes of the negative numbers.
  CodesOf negated(const std::string& name, CodesOf codes) {
    const Linear& of = codes.linear;
    Ints table;
    for (int bits = 0; bits < 256; ++bits)
      table.push_back(of.least() + of.most() - (of.type == DType::i8 ? int{static_cast<std::int8_t>(bits)} : bits));
    auto op = make_normalised_op("QuantizedTable",
                                 {{"table", std::move(table)}, {"stored_type", std::string(to_string(of.type))}}, 1);
    codes.id = edit_.add_node(name + ":negative", std::move(op), {codes.id});
    codes.linear.zero_point = of.least() + of.most() - of.zero_point;
    return codes;
  }

  /// Linear blends of codes are blends of their numbers: the weights add up to 1.
  Lowered resize(const Node& node, const Linear& y, const CodeRange& range) {
    const auto x = codes_of(edit_, node.inputs[0]);
    AttributeList attributes = node.op->attributes();
    if (!x || attribute<std::string>(*node.op, "mode") != "linear" ||
        integer_attribute(*node.op, "antialias").value_or(0) != 0 ||
        integer_attribute(*node.op, "exclude_outside").value_or(0) != 0 ||
        attribute<std::string>(*node.op, "coordinate_transformation_mode") == "tf_crop_and_resize" ||
        node.op->gives_input_back(graph().input_infos(node)) || graph().value(node.outputs[0]).shape.elems() == 0)
      return {};
    const float factor = x->linear.scale / y.scale;
    if (!std::isnormal(factor)) return {.refusal = "its scales have no quotient in float32"};
    attributes.emplace_back("code_factor", double{factor});
    attributes.emplace_back("x_zero_point", std::int64_t{x->linear.zero_point});
    attributes.emplace_back("y_zero_point", std::int64_t{y.zero_point});
    attributes.emplace_back("stored_type", std::string(to_string(y.type)));
    attributes.emplace_back("stored_range", Ints{range.least, range.most});
    std::vector<ValueId> inputs = node.inputs;
    inputs[0] = x->id;
    return {.op = make_normalised_op(std::string(node.type()), attributes, inputs.size()), .inputs = std::move(inputs)};
  }

  /// Whether it is the mean of each channel of an image.
  bool means_image(const Node& node) {
    if (node.inputs.empty() || node.inputs[0] == no_id || graph().value(node.inputs[0]).shape.rank() != 4) return false;
    if (node.type() == "GlobalAveragePool") return true;
    const Shape& x = graph().value(node.inputs[0]).shape;
    if (node.type() == "AveragePool")
      return integers_attribute(*node.op, "kernel_shape") == Ints{x[2], x[3]} &&
             integers_attribute(*node.op, "pads") == Ints{0, 0, 0, 0} &&
             graph().value(node.outputs[0]).shape == x.with(2, 1).with(3, 1);
    if (node.type() != "ReduceMean") return false;
    std::optional<Ints> axes = integers_attribute(*node.op, "axes");
    if (const ValueId given = input_of(node, 1); given != no_id && graph().value(given).is_constant()) {
      const auto values = graph().value(given).constant.values<std::int64_t>();
      axes = Ints(values.begin(), values.end());
    }
    if (!axes) return false;
    for (std::int64_t& axis : *axes) axis += axis < 0 ? 4 : 0;
    std::ranges::sort(*axes);
    return *axes == Ints{2, 3};
  }

  /// Of images, or of `windows`.
  Lowered mean(const Node& node, const Linear& y, const CodeRange& range, bool windows) {
    const auto x = codes_of(edit_, node.inputs[0]);
    const Shape& shape = graph().value(node.inputs[0]).shape;
    if (!x) return {.refusal = "its input has no codes of 8 bits"};
    std::int64_t pixels = 1;
    for (int axis = 2; axis < shape.rank(); ++axis) pixels *= shape[axis];
    if (pixels > std::int64_t{1} << 22) return {.refusal = "its image has more than 2^22 pixels"};
    if (shape.elems() == 0) return {.refusal = "it has no elements"};
    if (!std::isfinite(x->linear.scale / y.scale)) return {.refusal = "its scales have no quotient in float32"};
    AttributeList attributes = windows ? node.op->attributes() : AttributeList{};
    append(attributes, "x", x->linear);
    append(attributes, y, range);
    return {.op = make_normalised_op(windows ? "QuantizedAveragePool" : "QuantizedGlobalAveragePool", attributes, 1),
            .inputs = {x->id}};
  }

  GraphEdit& edit_;
  Refusals& refusals_;
};

}  // namespace

void lower_nodes(GraphEdit& edit, Refusals& refusals) {
  Lowering lowering(edit, refusals);
  for (const NodeId n : edit.nodes()) {
    if (edit.erased(n)) continue;
    if (edit.graph().node(n).type() == "QLinearConv") {
      if (std::string why = lower_qlinear_conv(edit, n); !why.empty()) refusals[n] = std::move(why);
    } else if (const auto y = quantizer(edit, n)) {
      lowering.lower(n, y->to);
    }
  }
}

}  // namespace lenslet
