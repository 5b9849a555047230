// fuse_layer_norm: exporters before opset 17 spell LayerNormalization as d = x - ReduceMean(x), then d / Sqrt(
// ReduceMean(d^2) + epsilon) * scale + bias. One step reads x once; these are nine passes over memory. Exporters before
// opset 23 spell RMSNormalization as x / Sqrt(ReduceMean(x^2) + epsilon) * scale: six passes.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/reduced_axes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

class Normalisations {
 public:
  explicit Normalisations(Graph& graph) : graph_(graph), edit_(graph) {}

  void run() {
    // From the end: an Add or Mul that applies bias and scale is met before the quotient that it reads.
    std::vector<NodeId> nodes = edit_.nodes();
    std::ranges::reverse(nodes);
    for (const NodeId id : nodes)
      if (!edit_.erased(id)) join(id);
    edit_.finish();
  }

 private:
  struct Rows {
    ValueId x = no_id;
    std::int64_t axis = 0;  ///< the first of the axes to the end; or 1 of four, which is `channels`
    bool channels = false;
    bool centered = true;  ///< else RMSNormalization
    float epsilon = 0;
  };

  const Shape& shape_of(ValueId id) const { return graph_.value(id).shape; }

  /// x - ReduceMean(x).
  struct Distance {
    ValueId x = no_id;
    Integers axes;
  };
  std::optional<Distance> distance(ValueId id) const {
    const Node* const difference = edit_.made_by(id, "Sub");
    if (difference == nullptr) return std::nullopt;
    const Node* const mean = edit_.made_by(difference->inputs[1], "ReduceMean");
    if (mean == nullptr || mean->inputs[0] != difference->inputs[0]) return std::nullopt;
    auto axes = kept_axes(graph_, *mean);
    if (!axes) return std::nullopt;
    return Distance{mean->inputs[0], std::move(*axes)};
  }

  /// d of `id` = 1 / d; no_id if it is made otherwise.
  ValueId inverted(ValueId id) const {
    if (const Node* const inverse = edit_.made_by(id, "Reciprocal"); inverse != nullptr) return inverse->inputs[0];
    const Node* const quotient = edit_.made_by(id, "Div");
    return quotient != nullptr && scalar_constant(graph_, quotient->inputs[0]) == 1.0F ? quotient->inputs[1] : no_id;
  }

  /// What `id` = d / Sqrt(ReduceMean(d^2) + epsilon) normalises, perhaps spelled d * (1 / Sqrt(...)).
  std::optional<Rows> rows_of(ValueId id) const {
    if (const Node* const quotient = edit_.made_by(id, "Div"); quotient != nullptr)
      return quotient_rows(id, quotient->inputs[0], quotient->inputs[1]);
    const Node* const product = edit_.made_by(id, "Mul");
    if (product == nullptr) return std::nullopt;
    auto rows = quotient_rows(id, product->inputs[0], inverted(product->inputs[1]));
    return rows ? rows : quotient_rows(id, product->inputs[1], inverted(product->inputs[0]));
  }

  /// The same of `id` = dividend / deviation.
  std::optional<Rows> quotient_rows(ValueId id, ValueId dividend, ValueId deviation) const {
    const Node* const root = edit_.made_by(deviation, "Sqrt");
    const Node* const sum = root == nullptr ? nullptr : edit_.made_by(root->inputs[0], "Add");
    if (sum == nullptr) return std::nullopt;
    const std::size_t side = scalar_constant(graph_, sum->inputs[0]) ? 0U : 1U;
    const std::optional<float> epsilon = scalar_constant(graph_, sum->inputs[side]);
    const Node* const variance = edit_.made_by(sum->inputs[1 - side], "ReduceMean");
    if (!epsilon || !(*epsilon >= 0) || std::isinf(*epsilon) || variance == nullptr) return std::nullopt;
    const std::optional<Integers> axes = kept_axes(graph_, *variance);
    const ValueId root_of = squared(edit_, variance->inputs[0]);
    if (!axes || root_of == no_id) return std::nullopt;
    const auto above = distance(dividend), below = distance(root_of);
    const bool centered = above && below && above->x == below->x && above->axes == *axes && below->axes == *axes;
    if (!centered && dividend != root_of) return std::nullopt;
    const ValueId from = centered ? above->x : dividend;
    const Value& x = graph_.value(from);
    if (x.dtype != DType::f32 || x.shape.elems() == 0 || !(shape_of(id) == x.shape)) return std::nullopt;
    Rows rows{from, axes->front(), false, centered, *epsilon};
    rows.channels = x.shape.rank() == 4 && *axes == Integers{1};
    const auto count = static_cast<std::int64_t>(axes->size());
    const bool trailing = axes->back() - axes->front() + 1 == count && rows.axis + count == x.shape.rank();
    // FilterResponseNorm: as a step of rows it would cost conversions from nhwc and back.
    if (!centered && x.shape.rank() == 4 && count > 1) return std::nullopt;
    return rows.channels || trailing ? std::optional(rows) : std::nullopt;
  }

  Shape row_of(const Rows& rows) const {
    const Shape& x = shape_of(rows.x);
    Integers row;
    for (int axis = static_cast<int>(rows.axis); axis < (rows.channels ? 2 : x.rank()); ++axis) row.push_back(x[axis]);
    return Shape(row);
  }

  /// A constant with an element for each of a row's, as LayerNormalization has it: of the row's shape.
  std::optional<Tensor> parameter(ValueId id, const Rows& rows) const {
    const Value& value = graph_.value(id);
    const Shape row = row_of(rows);
    if (!value.is_constant() || value.dtype != DType::f32 || value.shape.rank() > shape_of(rows.x).rank() ||
        value.shape.elems() != row.elems())
      return std::nullopt;
    // Aligned at the end, as broadcasting does.
    const int behind = rows.channels ? 2 : 0;
    for (int i = 1; i <= value.shape.rank(); ++i) {
      const int at = row.rank() + behind - i;
      const bool of_row = i > behind && at >= 0;
      if (value.shape[value.shape.rank() - i] != (of_row ? row[at] : 1)) return std::nullopt;
    }
    return Tensor::of<float>(row, value.constant.values<float>());
  }

  /// `id` = f(y, c) for a y that nobody else reads and a parameter c: y and c.
  struct Applied {
    ValueId y = no_id, constant = no_id;
  };
  std::optional<Applied> applied(ValueId id, std::string_view type) const {
    const Node* const node = edit_.made_by(id, type);
    if (node == nullptr) return std::nullopt;
    const std::size_t side = graph_.value(node->inputs[0]).is_constant() ? 0U : 1U;
    const Applied found{node->inputs[1 - side], node->inputs[side]};
    if (!graph_.value(found.constant).is_constant() || !edit_.merges(found.y)) return std::nullopt;
    return found;
  }

  void join(NodeId id) {
    ValueId at = graph_.node(id).outputs.empty() ? no_id : graph_.node(id).outputs[0];
    if (at == no_id) return;
    ValueId bias = no_id, scale = no_id;
    if (const auto sum = applied(at, "Add")) std::tie(at, bias) = std::pair(sum->y, sum->constant);
    if (const auto product = applied(at, "Mul")) std::tie(at, scale) = std::pair(product->y, product->constant);
    const auto rows = rows_of(at);
    if (!rows || (bias != no_id && !rows->centered)) return;
    std::optional<Tensor> scales, biases;
    if (scale != no_id && !(scales = parameter(scale, *rows))) return;
    if (bias != no_id && !(biases = parameter(bias, *rows))) return;
    replace(id, *rows, scales, biases);
  }

  void replace(NodeId id, const Rows& rows, const std::optional<Tensor>& scales, const std::optional<Tensor>& biases) {
    const std::string name = graph_.node(id).name;
    const std::vector<ValueId> old = graph_.node(id).inputs;
    const DType type = graph_.value(graph_.node(id).outputs[0]).file_type;
    const Shape parameters = row_of(rows);
    const Tensor ones =
        Tensor::of<float>(parameters, std::vector<float>(static_cast<std::size_t>(parameters.elems()), 1.0F));
    std::vector<ValueId> inputs{rows.x, edit_.add_constant(name + ":scale", scales ? *scales : ones)};
    if (biases) inputs.push_back(edit_.add_constant(name + ":bias", *biases));
    auto norm = make_normalised_op(
        rows.centered ? "LayerNormalization" : "RMSNormalization",
        {{"axis", rows.channels ? std::int64_t{3} : rows.axis}, {"epsilon", static_cast<double>(rows.epsilon)}},
        inputs.size());
    if (rows.channels) {
      inputs[0] = edit_.add_node(name + ":channels_last", make_transpose_op(to_channels_last), {rows.x});
      graph_.value(inputs[0]).file_type = graph_.value(rows.x).file_type;
      const ValueId y = edit_.add_node(name, std::move(norm), std::move(inputs));
      graph_.value(y).file_type = type;
      edit_.replace(id, make_transpose_op(to_channels_first), {y});
      graph_.node(id).name = name + ":channels_first";
    } else {
      edit_.replace(id, std::move(norm), std::move(inputs));
    }
    for (const ValueId input : old) edit_.erase_unread(input);
  }

  Graph& graph_;
  GraphEdit edit_;
};

}  // namespace

void fuse_layer_norm(Graph& graph, const PassContext&) { Normalisations(graph).run(); }

}  // namespace lenslet
