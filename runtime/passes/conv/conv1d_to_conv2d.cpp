// conv1d_to_conv2d: a convolution of [N,C,L] becomes one of the image [N,C,1,L], which more kernels and 16-bit types
// take. What lies between two of them (elementwise steps, BatchNormalization) reads images, too, so that the epilogue
// takes it; so does a Split of channels (gates). A filter of one tap may as well read the image [N,C,H,W] of which
// [N,C,L] is another view.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

class Sequences {
 public:
  explicit Sequences(Graph& graph) : graph_(graph), edit_(graph), readers_(graph.readers()) {}

  void run() {
    for (const NodeId id : edit_.nodes()) {
      if (edit_.erased(id) || !has_result(graph_.node(id))) continue;
      read_images(id);
      const Node& node = graph_.node(id);
      if (node.type() == "Split") {
        lift_split(id);
      } else if (node.outputs.size() != 1) {
        continue;
      } else if (is_convolution(node)) {
        lift_convolution(id);
      } else if (is_view(node)) {
        const auto image = images_.find(node.inputs[0]);
        if (image != images_.end() && shape_of(image->second) == shape_of(node.outputs[0]))
          same_[node.outputs[0]] = image->second;
      } else if (shape_of(node.outputs[0]).rank() == 3 && graph_.value(node.outputs[0]).dtype == DType::f32) {
        lift_elementwise(id);
      }
    }
    for (const auto& [view, image] : same_) edit_.erase_unread(view);
    edit_.finish();
  }

 private:
  const Shape& shape_of(ValueId id) const { return graph_.value(id).shape; }
  bool has_image(ValueId id) const { return images_.contains(id); }

  /// Inputs that are views back to an image read the image itself.
  void read_images(NodeId id) {
    std::vector<ValueId> inputs = graph_.node(id).inputs;
    for (ValueId& input : inputs)
      if (const auto same = same_.find(input); same != same_.end()) input = same->second;
    if (inputs != graph_.node(id).inputs) edit_.replace(id, graph_.node(id).op, std::move(inputs));
  }

  bool is_convolution(const Node& node) const {
    if ((node.type() != "Conv" && node.type() != "ConvTranspose") || node.inputs.size() > 3) return false;
    const Value &x = graph_.value(node.inputs[0]), &filter = graph_.value(node.inputs[1]);
    const Node* const before = edit_.producer_node(node.inputs[0]);
    return x.shape.rank() == 3 && x.shape.elems() > 0 && x.dtype == DType::f32 && filter.is_constant() &&
           filter.shape.elems() > 0 && filter.dequantized == nullptr &&
           (before == nullptr || before->type() != "DequantizeLinear");  // lower_quantized reads these
  }
  /// Whether output l depends on input l alone.
  bool is_pointwise(const Node& node) const {
    const auto all = [&](const char* name, std::int64_t value) {
      const auto list = attribute<Integers>(*node.op, name);
      return !list || std::ranges::all_of(*list, [value](std::int64_t entry) { return entry == value; });
    };
    return node.type() == "Conv" && shape_of(node.inputs[1])[2] == 1 && all("strides", 1) && all("pads", 0);
  }

  ValueId reshaped(ValueId x, const Integers& sizes) {
    const std::string name = graph_.value(x).name;
    return edit_.add_node(name + ":image", make_reshape_op(), {x, edit_.add_sizes(name + ":image_shape", sizes)},
                          graph_.value(x).file_type);
  }
  /// An image with the elements of `x` [N,C,L]: of height 1, or `any` that there is.
  ValueId image_of(ValueId x, bool any) {
    const Shape shape = shape_of(x);
    if (const auto image = images_.find(x); image != images_.end() && (any || shape_of(image->second)[2] == 1))
      return image->second;
    const Node* const before = edit_.producer_node(x);
    if (any && before != nullptr && is_view(*before)) {
      const Shape& from = shape_of(before->inputs[0]);
      if (from.rank() == 4 && from[0] == shape[0] && from[1] == shape[1]) return images_[x] = before->inputs[0];
    }
    const ValueId image = reshaped(x, {shape[0], shape[1], 1, shape[2]});
    images_.emplace(x, image);
    return image;
  }

  void lift_convolution(NodeId id) {
    const Node node = graph_.node(id);  // a copy: image_of() adds nodes
    const ValueId filter = node.inputs[1];
    if (!filters_.contains(filter)) {
      const Shape of = shape_of(filter);
      const Tensor taps = graph_.value(filter).constant.reshaped({of[0], of[1], 1, of[2]});
      filters_[filter] = edit_.add_constant(graph_.value(filter).name, taps);
    }
    std::vector<ValueId> inputs = node.inputs;
    inputs[0] = image_of(inputs[0], is_pointwise(node));
    inputs[1] = filters_[filter];
    lift(id, make_normalised_op(node.type(), node.op->attributes(), inputs.size()), std::move(inputs));
  }

  /// An elementwise step or BatchNormalization that reads an image as [N,C,L].
  void lift_elementwise(NodeId id) {
    const Node node = graph_.node(id);
    const Shape y = shape_of(node.outputs[0]);
    const bool normalises = node.type() == "BatchNormalization";
    const std::size_t count = normalises ? 1 : std::min(node.op->elementwise_inputs(), node.inputs.size());
    const auto end = node.inputs.begin() + static_cast<std::ptrdiff_t>(count);
    const auto first = std::find_if(node.inputs.begin(), end, [&](ValueId input) { return has_image(input); });
    if (first == end) return;
    const Shape image = shape_of(images_[*first]);
    if (image[2] * image[3] != y[2]) return;
    std::vector<ValueId> inputs = node.inputs;
    for (std::size_t i = 0; i < count; ++i) {
      const ValueId input = inputs[i];
      if (input == no_id || graph_.value(input).shape.rank() == 0) continue;
      const Shape shape = shape_of(input);
      Integers sizes(shape.dims().begin(), shape.dims().end() - 1);
      const bool row = shape[shape.rank() - 1] == y[2];  // else it is 1: inputs broadcast to y
      sizes.insert(sizes.end(), {row ? image[2] : 1, row ? image[3] : 1});
      if (graph_.value(input).is_constant()) {
        const Tensor values = graph_.value(input).constant.reshaped(Shape(sizes));
        inputs[i] = edit_.add_constant(graph_.value(input).name, values);
      } else if (has_image(input) && shape_of(images_[input]) == Shape(sizes)) {
        inputs[i] = images_[input];
      } else {
        inputs[i] = reshaped(input, sizes);
      }
    }
    lift(id, node.op, std::move(inputs));
  }

  /// A Split of an image's channels whose parts are read by what reads images.
  void lift_split(NodeId id) {
    const Node node = graph_.node(id);  // a copy: nodes are added
    const auto image = images_.find(node.inputs[0]);
    const auto axis = integer_attribute(*node.op, "axis");
    const auto is_lifted = [&](NodeId reader) {
      const Node& next = graph_.node(reader);
      return is_convolution(next) || (next.op->elementwise_inputs() > 0 && next.outputs.size() == 1 &&
                                      shape_of(next.outputs[0]) == shape_of(node.outputs[0]));
    };
    if (image == images_.end() || shape_of(node.inputs[0]).rank() != 3 || (axis != 1 && axis != -2) ||
        std::ranges::any_of(node.outputs, [&](ValueId part) {
          return part == no_id || edit_.is_output(part) || graph_.value(part).dtype != DType::f32 ||
                 !std::ranges::all_of(readers_[static_cast<std::size_t>(part)], is_lifted);
        }))
      return;
    const Shape whole = shape_of(image->second);
    std::vector<ValueId> inputs = node.inputs, parts;
    inputs[0] = image->second;
    for (const ValueId part : node.outputs) {
      parts.push_back(edit_.add_value_like(graph_.value(part).name + ":image", graph_.value(part)));
      graph_.value(parts.back()).shape = Shape{whole[0], shape_of(part)[1], whole[2], whole[3]};
    }
    edit_.replace(id, with_attributes(*node.op, {{"axis", std::int64_t{1}}}, inputs.size(), parts.size()), inputs);
    edit_.set_outputs(id, parts);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const ValueId sizes = edit_.add_sizes(node.name + ":shape", shape_of(node.outputs[i]).dims());
      const DType type = graph_.value(parts[i]).file_type;
      const ValueId view = edit_.add_node(node.name + ":sequence", make_reshape_op(), {parts[i], sizes}, type);
      edit_.set_outputs(edit_.producer(view), {node.outputs[i]});
      images_[node.outputs[i]] = parts[i];
    }
    edit_.erase_unread(node.inputs[0]);
  }

  /// `op` makes the image of what the node makes now, and the node becomes a view of it.
  void lift(NodeId id, std::shared_ptr<const Op> op, std::vector<ValueId> inputs) {
    const ValueId y = graph_.node(id).outputs[0];
    const std::string name = graph_.node(id).name;
    const std::vector<ValueId> old = graph_.node(id).inputs;
    const ValueId image = edit_.add_node(name, std::move(op), std::move(inputs), graph_.value(y).file_type);
    const Integers sizes(shape_of(y).dims().begin(), shape_of(y).dims().end());
    edit_.replace(id, make_reshape_op(), {image, edit_.add_sizes(name + ":shape", sizes)});
    graph_.node(id).name = name + ":sequence";
    images_[y] = image;
    for (const ValueId input : old) edit_.erase_unread(input);
  }

  Graph& graph_;
  GraphEdit edit_;
  std::vector<std::vector<NodeId>> readers_;  ///< by value, before the pass
  std::map<ValueId, ValueId> images_;         ///< of [N,C,L]: the same elements as [N,C,H,W]
  std::map<ValueId, ValueId> same_;           ///< of a view's result: the image that it is
  std::map<ValueId, ValueId> filters_;        ///< of [K,C,S]: [K,C,1,S]
};

}  // namespace

void conv1d_to_conv2d(Graph& graph, const PassContext&) { Sequences(graph).run(); }

}  // namespace lenslet
