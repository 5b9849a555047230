#include "runtime/passes/spelled_activations.h"

#include <cmath>
#include <utility>

namespace lenslet {
namespace {

// HardSwish is x * min(max(x/6 + 1/2, 0), 1) = x * min(max(x + 3, 0), 6) / 6. Constants may differ in the last bits, as
// 1/6 does between exporters.
constexpr double sixth = 1.0 / 6, closeness = 1e-6;
bool is_close(double value, double wanted) { return std::abs(value - wanted) <= closeness * std::abs(wanted); }

/// alpha * max(0, x) + beta, or with `squared` alpha * max(0, x)^2 + beta.
struct AffineOfRelu {
  ValueId x = no_id;
  bool squared = false;
  double alpha = 1, beta = 0;
};

/// A group of nodes being recognised, from its last node upwards.
class Matcher {
 public:
  explicit Matcher(const GraphEdit& edit) : edit_(edit) {}

  /// f(x, c) for a constant c: in either order when the operation commutes. The x, or no_id.
  ValueId with_constant(const Node* node, double constant, bool commutes) const {
    if (node == nullptr) return no_id;
    for (const std::size_t side : {std::size_t{1}, std::size_t{0}}) {
      if (side == 0 && !commutes) break;
      const auto value = scalar_constant(edit_.graph(), node->inputs[side]);
      const ValueId x = node->inputs[1 - side];
      // A constant of higher rank would widen x.
      if (value && is_close(double{*value}, constant) && same_type(x, node->outputs[0])) return x;
    }
    return no_id;
  }
  /// The x of `id` = x / 6 or x * (1/6).
  ValueId divided_by_six(ValueId id) const {
    if (const ValueId x = with_constant(edit_.made_by(id, "Div"), 6, false); x != no_id) return x;
    return with_constant(edit_.made_by(id, "Mul"), sixth, true);
  }
  /// The x of `id` = Clip(x + 3, 0, 6).
  ValueId clipped_plus_three(ValueId id) const {
    const ValueId sum = activation_input(id, {Activation::Kind::clip, 0, 6});
    return sum == no_id ? no_id : with_constant(edit_.made_by(sum, "Add"), 3, true);
  }
  /// The x of `id` = HardSigmoid(x) with HardSwish's constants, in either spelling.
  ValueId hard_sigmoid(ValueId id) const {
    const auto x = activation_input(id, {Activation::Kind::hard_sigmoid, float(sixth), 0.5F});
    return x != no_id ? x : spelled_hard_sigmoid(id);
  }
  ValueId spelled_hard_sigmoid(ValueId id) const {
    const ValueId clipped = divided_by_six(id);
    return clipped == no_id ? no_id : clipped_plus_three(clipped);
  }
  /// The x of Relu(x), if that is `id`, is read `uses` times and is no output.
  ValueId relu_input(ValueId id, int uses) const {
    return edit_.uses(id) == uses && !edit_.is_output(id) ? activation_input(id, {Activation::Kind::relu, 0, 0})
                                                          : no_id;
  }
  ValueId sigmoid(ValueId id) const { return activation_input(id, {Activation::Kind::sigmoid, 0, 0}); }

  /// Of Relu(x)^2, or of such a square or a Relu(x) times or plus a number, whose nodes nobody else reads.
  std::optional<AffineOfRelu> affine_of_relu(const Node& node) const {
    if (node.type() == "Pow" || node.type() == "Mul") {
      const ValueId root = node.inputs[0];
      const bool squares =
          node.type() == "Pow" ? scalar_constant(edit_.graph(), node.inputs[1]) == 2.0F : node.inputs[1] == root;
      const ValueId x = squares ? relu_input(root, node.type() == "Pow" ? 1 : 2) : no_id;
      if (x != no_id && same_type(x, node.outputs[0])) return AffineOfRelu{.x = x, .squared = true};
    }
    if (node.type() != "Mul" && node.type() != "Add") return std::nullopt;
    for (const std::size_t side : {std::size_t{1}, std::size_t{0}}) {
      const auto number = scalar_constant(edit_.graph(), node.inputs[side]);
      const ValueId inner = node.inputs[1 - side];
      if (!number || !edit_.merges(inner) || !same_type(inner, node.outputs[0])) continue;
      AffineOfRelu found{.x = relu_input(inner, 1)};
      if (const Node& made = *edit_.producer_node(inner); made.type() == "AffineRelu" || made.type() == "StarRelu")
        found = {made.inputs[0], made.type() == "StarRelu", *attribute<double>(*made.op, "alpha"),
                 *attribute<double>(*made.op, "beta")};
      if (found.x == no_id) continue;
      if (node.type() == "Mul") found.alpha *= double{*number}, found.beta *= double{*number};
      if (node.type() == "Add") found.beta += double{*number};
      const auto alpha = static_cast<float>(found.alpha), beta = static_cast<float>(found.beta);
      const bool vanishes = alpha == 0 && found.alpha != 0;
      if (!std::isfinite(alpha) || !std::isfinite(beta) || vanishes) continue;
      return found;
    }
    return std::nullopt;
  }

  /// The x of a product x * f(x), where `inner` finds the x of f(x); else no_id.
  template <typename Inner>
  ValueId times_itself(const Node* product, Inner&& inner) const {
    if (product == nullptr || product->type() != "Mul") return no_id;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const ValueId x = product->inputs[side], f = product->inputs[1 - side];
      if (inner(f) == x) return x;
    }
    return no_id;
  }

 private:
  bool same_type(ValueId a, ValueId b) const {
    const Value &x = edit_.graph().value(a), &y = edit_.graph().value(b);
    return x.dtype == y.dtype && x.shape == y.shape;
  }
  ValueId activation_input(ValueId id, const Activation& wanted) const {
    const Node* node = edit_.producer_node(id);
    if (node == nullptr) return no_id;
    const auto found = node->op->as_activation(edit_.graph().input_infos(*node));
    if (!found || found->kind != wanted.kind || !is_close(double{found->alpha}, double{wanted.alpha}) ||
        !is_close(double{found->beta}, double{wanted.beta}))
      return no_id;
    return node->inputs[0];
  }

  const GraphEdit& edit_;
};

void become(GraphEdit& edit, NodeId node, std::shared_ptr<const Op> op, ValueId x) {
  const std::vector<ValueId> old = edit.graph().node(node).inputs;
  edit.replace(node, std::move(op), {x});
  for (const ValueId id : old)
    if (id != x) edit.erase_unread(id);
}

std::shared_ptr<const Op> make_affine_of_relu(const AffineOfRelu& f) {
  return make_normalised_op(f.squared ? "StarRelu" : "AffineRelu", {{"alpha", f.alpha}, {"beta", f.beta}}, 1);
}
std::shared_ptr<const Op> make_hard_sigmoid() {
  return make_normalised_op("HardSigmoid", {{"alpha", sixth}, {"beta", 0.5}}, 1);
}
std::shared_ptr<const Op> make_hard_swish() { return make_normalised_op("HardSwish", {}, 1); }

}  // namespace

void join_spelled_activation(GraphEdit& edit, NodeId id) {
  const Matcher match(edit);
  const Node& node = edit.graph().node(id);
  if (!has_result(node) || edit.graph().value(node.outputs[0]).dtype != DType::f32) return;
  if (const auto relu = match.affine_of_relu(node)) return become(edit, id, make_affine_of_relu(*relu), relu->x);
  if (node.type() != "Mul" && node.type() != "Div") return;
  const ValueId result = node.outputs[0];

  if (const ValueId x = match.times_itself(&node, [&](ValueId f) { return match.sigmoid(f); }); x != no_id)
    return become(edit, id, make_normalised_op("SiLU", {}, 1), x);
  ValueId x = match.times_itself(&node, [&](ValueId f) { return match.hard_sigmoid(f); });
  if (x == no_id)  // (x * Clip(x + 3, 0, 6)) / 6
    x = match.times_itself(edit.producer_node(match.divided_by_six(result)),
                           [&](ValueId f) { return match.clipped_plus_three(f); });
  if (x == no_id)  // (x / 6) * Clip(x + 3, 0, 6)
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      if (node.type() != "Mul") break;
      const ValueId sixth_of = match.divided_by_six(node.inputs[side]);
      if (sixth_of != no_id && match.clipped_plus_three(node.inputs[1 - side]) == sixth_of) x = sixth_of;
    }
  if (x != no_id) return become(edit, id, make_hard_swish(), x);
  if (x = match.spelled_hard_sigmoid(result); x != no_id) return become(edit, id, make_hard_sigmoid(), x);
  if (auto gelu = spelled_gelu(edit, result); gelu.op != nullptr) become(edit, id, std::move(gelu.op), gelu.x);
}

}  // namespace lenslet
