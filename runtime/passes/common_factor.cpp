// common_factor: x + x * a * b [+ c] becomes x * (1 + a * b) [+ c], where a, b and c broadcast to x and have at most a
// quarter of its elements: one pass over x instead of two to four. GlobalResponseNorm (S. Woo et al., "ConvNeXt V2",
// 2023) ends so. If a convolution without padding follows, c goes into its bias. x * f + x * g becomes x * (f + g), and
// softmax(x + c) becomes softmax(x) where c is small and the same for all that is summed: e^c is a common factor there.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/core/broadcast.h"
#include "runtime/passes/affine_before_conv.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// The factors' product has at most this part of x's elements: what is computed of it is then next to nothing.
constexpr std::int64_t least_ratio = 4;

/// x * factors + summand.
struct Product {
  ValueId x = no_id, summand = no_id;  ///< no summand: no_id
  std::vector<ValueId> factors = {};
};

class CommonFactors {
 public:
  explicit CommonFactors(Graph& graph) : graph_(graph), edit_(graph) {}

  void run() {
    for (const NodeId id : edit_.nodes()) {
      if (!edit_.erased(id)) factor_out(id);
      if (!edit_.erased(id)) join_products(id);
      if (!edit_.erased(id)) drop_shift(id);
    }
    for (const NodeId id : edit_.nodes())
      if (!edit_.erased(id) && std::ranges::find(sums_, input_of(graph_.node(id), 0)) != sums_.end())
        fold_affine_before(edit_, id);
    edit_.finish();
  }

 private:
  const Value& value(ValueId id) const { return graph_.value(id); }

  /// `id` as a product of x with values that broadcast to it, each step of which nothing else reads.
  std::optional<Product> product_with(ValueId x, ValueId id) const {
    Product found{.x = x};
    while (id != x) {
      const Node* const node = edit_.merges(id) ? edit_.producer_node(id) : nullptr;
      if (node == nullptr || node->inputs.size() != 2) return std::nullopt;
      const bool is_sum = node->type() == "Add";
      if (!is_sum && node->type() != "Mul") return std::nullopt;
      const std::size_t side = value(node->inputs[0]).shape == value(x).shape ? 0 : 1;
      const ValueId rest = node->inputs[side], small = node->inputs[1 - side];
      if (!(value(rest).shape == value(x).shape) || value(small).dtype != DType::f32 ||
          value(small).shape.elems() > value(x).shape.elems() / least_ratio)
        return std::nullopt;
      if (is_sum) {
        if (found.summand != no_id || !found.factors.empty()) return std::nullopt;
        found.summand = small;
      } else if (scalar_constant(graph_, small) != 1.0F) {
        found.factors.push_back(small);
      }
      id = rest;
    }
    const auto is_known = [&](ValueId factor) { return value(factor).is_constant(); };
    return std::ranges::all_of(found.factors, is_known) ? std::nullopt : std::optional(std::move(found));
  }

  void factor_out(NodeId id) {
    const Node& sum = graph_.node(id);
    if (sum.type() != "Add" || value(sum.outputs[0]).dtype != DType::f32) return;
    const std::shared_ptr<const Op> add = sum.op;
    for (const std::size_t side : {0U, 1U}) {
      const ValueId x = sum.inputs[side], other = sum.inputs[1 - side];
      if (x == other || !(value(x).shape == value(sum.outputs[0]).shape)) continue;
      const std::optional<Product> found = product_with(x, other);
      if (!found || !is_small(*found)) continue;
      const std::string name = sum.name;
      const DType file_type = value(sum.outputs[0]).file_type;
      const auto with = [&](const char* op, ValueId a, ValueId b) {
        return edit_.add_node(name + ":factor", make_normalised_op(op, {}, 2), {a, b}, file_type);
      };
      ValueId factor = found->factors[0];
      for (std::size_t i = 1; i < found->factors.size(); ++i) factor = with("Mul", factor, found->factors[i]);
      factor = with("Add", factor, edit_.add_constant(name + ":one", Tensor::of<float>(Shape{}, {1.0F})));
      if (found->summand == no_id) {
        edit_.replace(id, make_normalised_op("Mul", {}, 2), {x, factor});
      } else {
        edit_.replace(id, add, {with("Mul", x, factor), found->summand});
        sums_.push_back(graph_.node(id).outputs[0]);
      }
      return edit_.erase_unread(other);
    }
  }

  /// x * f + x * g.
  void join_products(NodeId id) {
    const Node& sum = graph_.node(id);
    if (sum.type() != "Add" || value(sum.outputs[0]).dtype != DType::f32) return;
    const ValueId first = sum.inputs[0], second = sum.inputs[1];
    const auto product = [&](ValueId y) { return edit_.merges(y) ? edit_.made_by(y, "Mul") : nullptr; };
    const Node* const one = product(first);
    const Node* const two = product(second);
    if (one == nullptr || two == nullptr) return;
    // A function of x itself may be an activation with it: x * sigmoid(x), x * sigmoid(1.702 x).
    const auto reads = [&](ValueId x, ValueId factor) {
      const Node* const node = edit_.producer_node(factor);
      return factor == x || (node != nullptr && std::ranges::count(node->inputs, x) != 0);
    };
    const auto made_of = [&](ValueId x, ValueId factor) {
      const Node* const node = edit_.producer_node(factor);
      return reads(x, factor) ||
             (node != nullptr && std::ranges::any_of(node->inputs, [&](ValueId input) { return reads(x, input); }));
    };
    for (const std::size_t i : {0U, 1U})
      for (const std::size_t j : {0U, 1U}) {
        const ValueId x = one->inputs[i], f = one->inputs[1 - i], g = two->inputs[1 - j];
        if (two->inputs[j] != x || !(value(x).shape == value(sum.outputs[0]).shape) || made_of(x, f) || made_of(x, g) ||
            value(x).is_constant() || (value(f).is_constant() && value(g).is_constant()))
          continue;
        const ValueId factor = edit_.add_node(sum.name + ":factor", sum.op, {f, g}, value(sum.outputs[0]).file_type);
        edit_.replace(id, make_normalised_op("Mul", {}, 2), {x, factor});
        edit_.erase_unread(first);
        return edit_.erase_unread(second);
      }
  }

  /// softmax(x + c) for constants c of size 1 along the axis of the sums. Large ones may be meant to round x, or to
  /// mask.
  void drop_shift(NodeId id) {
    const Node& node = graph_.node(id);
    if ((node.type() != "Softmax" && node.type() != "LogSoftmax") ||
        integer_attribute(*node.op, "flatten").value_or(0) != 0)
      return;
    const ValueId shifted = node.inputs[0];
    const Node* const add = edit_.merges(shifted) ? edit_.made_by(shifted, "Add") : nullptr;
    if (add == nullptr || value(shifted).dtype != DType::f32) return;
    const std::int64_t rank = value(shifted).shape.rank(), axis = integer_attribute(*node.op, "axis").value_or(-1);
    const std::int64_t from_end = axis < 0 ? -axis : rank - axis;
    for (const std::size_t side : {0U, 1U}) {
      const ValueId x = add->inputs[side];
      const Value& shift = value(add->inputs[1 - side]);
      const std::int64_t at = shift.shape.rank() - from_end;
      if (!(value(x).shape == value(shifted).shape) || !shift.is_constant() ||
          (at >= 0 && shift.shape[static_cast<int>(at)] != 1) ||
          !std::ranges::all_of(shift.constant.values<float>(), [](float c) { return std::abs(c) <= 1024; }))
        continue;
      edit_.replace(id, node.op, {x});
      return edit_.erase_unread(shifted);
    }
  }

  bool is_small(const Product& product) const {
    Shape all{};
    for (const ValueId factor : product.factors) all = broadcast_shapes(all, value(factor).shape);
    return all.elems() <= value(product.x).shape.elems() / least_ratio;
  }

  Graph& graph_;
  GraphEdit edit_;
  std::vector<ValueId> sums_;
};

}  // namespace

void common_factor(Graph& graph, const PassContext&) { CommonFactors(graph).run(); }

}  // namespace lenslet
