// fuse_response_norm: on CUDA, what common_factor leaves of a GlobalResponseNorm: x * (1 + scale * g / (mean(g) +
// epsilon)) + bias, where g are the channels' norms over the image. On the CPU the steps between take no time, and x's
// product may be part of a band (choose_bands).
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/reduced_axes.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

class ResponseNorms {
 public:
  explicit ResponseNorms(Graph& graph) : graph_(graph), edit_(graph) {}

  void run() {
    // From the end: an Add of the bias is met before the product that it reads.
    std::vector<NodeId> nodes = edit_.nodes();
    std::ranges::reverse(nodes);
    for (const NodeId id : nodes)
      if (!edit_.erased(id)) join(id);
    edit_.finish();
  }

 private:
  struct Found {
    ValueId x = no_id, scale = no_id, bias = no_id;  ///< no bias: no_id
    int axis = 1;                                    ///< of the channels: 1 or the last
    float epsilon = 0;
  };
  /// The operands of a node of two, in one of their orders.
  struct Operands {
    ValueId first = no_id, second = no_id;
  };

  const Shape& shape_of(ValueId id) const { return graph_.value(id).shape; }

  /// The operands of `id` = TYPE(a, b) in both orders; none if it is made otherwise, or others read it.
  std::vector<Operands> operands_of(ValueId id, std::string_view type) const {
    const Node* const node = edit_.merges(id) ? edit_.made_by(id, type) : nullptr;
    if (node == nullptr) return {};
    return {{node->inputs[0], node->inputs[1]}, {node->inputs[1], node->inputs[0]}};
  }

  /// The axes of x over which `id` is the root of the sum of squares, keeping them; nothing if it is not.
  std::optional<Integers> norm_axes(ValueId id, ValueId x) const {
    if (const Node* const norm = edit_.made_by(id, "ReduceL2"); norm != nullptr)
      return norm->inputs[0] == x ? kept_axes(graph_, *norm) : std::nullopt;
    const Node* const root = edit_.made_by(id, "Sqrt");
    if (root == nullptr || !edit_.merges(root->inputs[0])) return std::nullopt;
    if (const Node* const squares = edit_.made_by(root->inputs[0], "ReduceSumSquare"); squares != nullptr)
      return squares->inputs[0] == x ? kept_axes(graph_, *squares) : std::nullopt;
    const Node* const sum = edit_.made_by(root->inputs[0], "ReduceSum");
    return sum != nullptr && edit_.merges(sum->inputs[0]) && squared(edit_, sum->inputs[0]) == x
               ? kept_axes(graph_, *sum)
               : std::nullopt;
  }
  /// The channels' axis where these axes are all but theirs and the images': 1 or the last. Nothing for other axes.
  static std::optional<int> channel_axis(const Integers& axes, int rank) {
    for (const int channels : {1, rank - 1}) {
      Integers image;
      for (int axis = 1; axis < rank; ++axis)
        if (axis != channels) image.push_back(axis);
      if (axes == image) return channels;
    }
    return std::nullopt;
  }

  /// Finds axis and epsilon of `id` = g / (mean of g over the channels + epsilon).
  bool is_response(ValueId id, Found& found) const {
    const Node* const quotient = edit_.merges(id) ? edit_.made_by(id, "Div") : nullptr;
    if (quotient == nullptr || edit_.uses(quotient->inputs[0]) != 2) return false;
    const ValueId norms = quotient->inputs[0];
    const std::optional<Integers> axes = norm_axes(norms, found.x);
    const std::optional<int> axis = axes ? channel_axis(*axes, shape_of(found.x).rank()) : std::nullopt;
    if (!axis) return false;
    found.axis = *axis;
    for (const auto& [mean, epsilon] : operands_of(quotient->inputs[1], "Add")) {
      const Node* const node = edit_.merges(mean) ? edit_.made_by(mean, "ReduceMean") : nullptr;
      const std::optional<float> number = scalar_constant(graph_, epsilon);
      if (node == nullptr || node->inputs[0] != norms || !keeps_axes(*node) || !number) continue;
      found.epsilon = *number;
      return *number > 0 && std::isfinite(*number) && reduced_axes(graph_, *node) == Integers{found.axis};
    }
    return false;
  }

  /// A constant with a number for each channel, of shape [C]; broadcast as it stands, it lies along their axis.
  std::optional<Tensor> parameter(ValueId id, const Found& found) const {
    const Value& value = graph_.value(id);
    const Shape& x = shape_of(found.x);
    const std::int64_t channels = x[found.axis];
    const int own = value.shape.rank() - (x.rank() - found.axis);  // the channels' axis
    if (!value.is_constant() || value.dtype != DType::f32 || value.shape.rank() > x.rank() ||
        value.shape.elems() != channels || (channels > 1 && (own < 0 || value.shape[own] != channels)))
      return std::nullopt;
    return Tensor::of<float>(Shape{channels}, value.constant.values<float>());
  }

  /// `id` = x * (1 + scale * response), in any order of operands.
  std::optional<Found> product_of(ValueId id) const {
    const Node* const product = edit_.made_by(id, "Mul");
    if (product == nullptr) return std::nullopt;
    for (const std::size_t side : {0U, 1U}) {
      Found found{.x = product->inputs[side]};
      const Value& x = graph_.value(found.x);
      if (x.dtype != DType::f32 || x.shape.rank() < 3 || x.shape.elems() == 0 || !(x.shape == shape_of(id))) continue;
      for (const auto& [scaled, one] : operands_of(product->inputs[1 - side], "Add")) {
        if (scalar_constant(graph_, one) != 1.0F) continue;
        for (const auto& [response, scale] : operands_of(scaled, "Mul")) {
          found.scale = scale;
          if (is_response(response, found) && parameter(scale, found)) return found;
        }
      }
    }
    return std::nullopt;
  }

  void join(NodeId id) {
    if (!has_result(graph_.node(id))) return;
    const ValueId y = graph_.node(id).outputs[0];
    std::optional<Found> found = product_of(y);
    if (const Node& sum = graph_.node(id); sum.type() == "Add")
      for (const std::size_t side : {0U, 1U}) {
        const ValueId product = sum.inputs[side];
        if (found || !edit_.merges(product) || !(found = product_of(product))) continue;
        found->bias = sum.inputs[1 - side];
        if (!parameter(found->bias, *found)) found.reset();
      }
    if (found) replace(id, *found);
  }

  void replace(NodeId id, const Found& found) {
    const std::string name = graph_.node(id).name;
    const std::vector<ValueId> old = graph_.node(id).inputs;
    const Shape channels{shape_of(found.x)[found.axis]};
    const std::vector<float> zeros(static_cast<std::size_t>(channels[0]), 0.0F);
    const Tensor scale = *parameter(found.scale, found);
    const Tensor bias = found.bias == no_id ? Tensor::of<float>(channels, zeros) : *parameter(found.bias, found);
    const AttributeList attributes{{"channels_last", std::int64_t{found.axis != 1}},
                                   {"epsilon", static_cast<double>(found.epsilon)}};
    edit_.replace(id, make_normalised_op("GlobalResponseNorm", attributes, 3),
                  {found.x, edit_.add_constant(name + ":scale", scale), edit_.add_constant(name + ":bias", bias)});
    for (const ValueId input : old) edit_.erase_unread(input);
  }

  Graph& graph_;
  GraphEdit edit_;
};

}  // namespace

void fuse_response_norm(Graph& graph, const PassContext& context) {
  if (context.target.device.kind == DeviceKind::cuda) ResponseNorms(graph).run();
}

}  // namespace lenslet
