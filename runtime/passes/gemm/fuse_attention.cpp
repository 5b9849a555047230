// fuse_attention: MatMul, Softmax, MatMul of attention heads, with scales, biases and masks between them and the
// Reshapes, Transposes and Gathers around them, become one Attention; normalised rows of Q and K (Swin V2), too. Scores
// stay in the cache, and Q, K and V are read where a projection wrote them, images [N,C,H,W] as [N,H,W,C].
// EfficientViT's ReLU linear attention becomes one likewise, and on CUDA attention between channels (DaViT, XCiT).
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/core/kernel.h"
#include "ops/gemm/attention_op.h"
#include "runtime/passes/gemm/score_bias.h"
#include "runtime/passes/gemm/strided_view.h"
#include "runtime/passes/gemm/unit_rows.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

/// Scores [..,L,S] = factor * Q K^T + the biases.
struct Scores {
  const Node* product = nullptr;
  double factor = 1;
  std::vector<BiasTerm> biases;
  ValueId computed_bias = no_id;
  ValueId factors = no_id;  ///< known; one for each head or row, of the product
};

/// softmax(scores) V, or its transpose V^T softmax(scores)^T, whose columns are the tokens (EfficientViT of MSRA,
/// SHViT, YOLO11); behind it perhaps the Transpose of its heads.
struct Weighted {
  const Node *product = nullptr, *transpose = nullptr, *softmax = nullptr;
  bool of_columns = false;

  ValueId shares() const { return product->inputs[of_columns ? 1 : 0]; }
  ValueId v() const { return product->inputs[of_columns ? 0 : 1]; }
};

/// What scores are between. Rows of Q, K, V and Y are tokens, or channels whose elements are tokens.
enum class Between { tokens, channels };

/// [N,H,tokens,channels] with adjacent channels, of the view's value; of that [N,C,H,W] as [N,H,W,C] where so said.
/// Between channels the view is [N,H,channels,tokens].
struct Rows {
  StridedView view;
  bool channels_last = false;
};

class Heads {
 public:
  Heads(Graph& graph, const PassContext& context) : graph_(graph), context_(context), edit_(graph) {}

  void run() {
    // From the end: the Reshape and Transpose behind a product are met before it.
    std::vector<NodeId> nodes = edit_.nodes();
    std::ranges::reverse(nodes);
    for (const NodeId id : nodes)
      if (!edit_.erased(id) && has_result(graph_.node(id))) join(id);
    edit_.finish();
  }

 private:
  const Shape& shape_of(ValueId id) const { return graph_.value(id).shape; }

  /// What `id` ends: a product, perhaps the Transpose of its heads, perhaps a Reshape behind either.
  void join(NodeId id) {
    const Node* node = &graph_.node(id);
    const Node* transpose = node->type() == "Transpose" ? node : nullptr;
    if (node->type() == "Reshape" && edit_.merges(node->inputs[0])) {
      transpose = edit_.made_by(node->inputs[0], "Transpose");
      if (transpose == nullptr) node = edit_.producer_node(node->inputs[0]);
    }
    if (transpose != nullptr) {
      ValueId y = transpose->inputs[0];
      if (const Node* const shaped = edit_.made_by(y, "Reshape"); shaped != nullptr && edit_.merges(y))
        y = shaped->inputs[0];
      if (!edit_.merges(y)) return;
      node = edit_.producer_node(y);
    }
    if (node == nullptr) return;
    if (node->type() == "MatMul") return join(id, *node, transpose);
    if (node->type() == "Div") join_linear(id, *node, transpose);
  }

  void join(NodeId id, const Node& product, const Node* transpose) {
    Weighted found{.product = &product, .transpose = transpose};
    found.softmax = softmax_before(product.inputs[0]);
    found.of_columns = found.softmax == nullptr;
    if (found.of_columns && edit_.merges(product.inputs[1]))
      if (const Node* const turned = transposed_last(product.inputs[1]))
        found.softmax = softmax_before(turned->inputs[0]);
    if (found.softmax == nullptr) return;
    const Shape& y = shape_of(product.outputs[0]);
    if (y.rank() < 2 || y.elems() == 0 || graph_.value(product.outputs[0]).dtype != DType::f32 ||
        !batch_of_first(shape_of(found.shares()), shape_of(found.v())))
      return;
    const Shape& shares = shape_of(found.softmax->outputs[0]);
    const int rank = shares.rank();
    const std::int64_t axis = integer_attribute(*found.softmax->op, "axis").value_or(-1);
    if (shares.elems() == 0 || rank < 2 || (axis != -1 && axis != rank - 1)) return;
    const std::optional<Scores> scores = scores_of(found.softmax->inputs[0], shares);
    if (!scores) return;
    // The first of three axes is of heads, or of images with one head.
    const std::int64_t heads = rank > 2 ? shares[rank - 3] : 1;
    if (context_.target.device.kind == DeviceKind::cuda && join(id, found, *scores, heads, Between::channels)) return;
    if (!join(id, found, *scores, heads) && rank == 3 && heads > 1 && scores->computed_bias == no_id)
      join(id, found, *scores, 1);
  }

  /// False if the operands have no rows of `heads` heads, or no kernel takes these between channels.
  bool join(NodeId id, const Weighted& found, Scores scores, std::int64_t heads, Between between = Between::tokens) {
    const Node& product = *found.product;
    const Shape shares = shape_of(found.softmax->outputs[0]), y = shape_of(product.outputs[0]);
    const ValueId of_q = scores.product->inputs[0], of_k = scores.product->inputs[1];
    AttentionProblem p;
    p.heads = heads;
    p.queries = shares[shares.rank() - 2], p.keys = shares[shares.rank() - 1];
    p.n = shares.elems() / (p.heads * p.queries * p.keys);
    p.head_size = shape_of(of_q)[shape_of(of_q).rank() - 1];
    p.value_size = y[y.rank() - (found.of_columns ? 2 : 1)];
    if (auto by_head = head_scales(scores.factors, p.heads)) {
      p.head_scales = std::move(*by_head);
      scores.factors = no_id;
    }
    const bool channels = p.between_channels = between == Between::channels;
    const bool biased = !scores.biases.empty() || scores.computed_bias != no_id;
    if (channels && (biased || scores.factors != no_id)) return false;
    const auto units = scores.factors == no_id ? unit_rows_of(of_q, of_k) : std::nullopt;
    if (units) p.qk_norm_epsilon = units->first.epsilon;
    const Shape shape = shape_of(graph_.node(id).outputs[0]);
    const Shape q_rows{p.n, p.heads, p.queries, p.head_size}, k_rows{p.n, p.heads, p.keys, p.head_size};
    auto q = rows(units ? units->first.x : of_q, false, shape_of(of_q), q_rows, between, !units);
    const auto k = rows(units ? units->second.x : of_k, !units, shape_of(of_q), k_rows, between, !units);
    const auto v = rows(found.v(), found.of_columns, shape_of(found.shares()), {p.n, p.heads, p.keys, p.value_size},
                        between, false);
    const auto written =
        rows_of_y(product, found.transpose, found.of_columns, shape, {p.n, p.heads, p.queries, p.value_size}, between);
    if (!q || !k || !v || !written) return false;
    std::optional<Tensor> bias;
    if (!scores.biases.empty() && !(bias = constant_bias(graph_, scores.biases, p))) return false;

    const std::string name = product.name;
    if (scores.factors != no_id) {  // no reference to a node below
      const ValueId scaled_q =
          edit_.add_node(name + ":scaled", make_normalised_op("Mul", {}, 2), {of_q, scores.factors});
      q = Rows{whole_value(graph_, scaled_q)};
      q->view.reshape({p.n, p.heads, p.queries, p.head_size});
    }
    p.scale = scores.factor * q->view.factor * k->view.factor;
    std::vector<ValueId> biases;
    if (bias) biases.push_back(edit_.add_constant(name + ":bias", *bias));
    if (scores.computed_bias != no_id) biases.push_back(scores.computed_bias);
    return fuse(id, p, *q, *k, *v, *written, name, biases) || !channels;
  }

  /// relu(Q) (relu(K)^T [V 1]): all columns but the last, divided by that and an epsilon.
  void join_linear(NodeId id, const Node& division, const Node* transpose) {
    const ValueId sums = division.inputs[0], divisors = division.inputs[1];
    const Node* const plus = edit_.merges(divisors) ? edit_.made_by(divisors, "Add") : nullptr;
    const auto epsilon = plus != nullptr ? scalar_constant(graph_, plus->inputs[1]) : std::nullopt;
    if (!epsilon || !edit_.merges(sums) || !edit_.merges(plus->inputs[0])) return;
    const std::vector<StridedView> all = strided_views_of(sums), last = strided_views_of(plus->inputs[0]);
    for (const StridedView& view : all) {
      const Node* const product = edit_.made_by(view.value, "MatMul");
      const auto beside = std::ranges::find(last, view.value, &StridedView::value);
      if (product == nullptr || beside == last.end() || edit_.uses(view.value) != 2) continue;
      const Shape &shape = shape_of(view.value), &result = shape_of(sums);
      const std::int64_t e = shape.rank() == 4 ? shape[3] - 1 : 0;
      // The columns [0,e) and e of the product.
      if (e < 1 || !(result == shape.with(3, e)) || view.factor != 1 || view.offset != 0 || beside->offset != e ||
          beside->factor != 1 || beside->dims != Integers{shape[0], shape[1], shape[2], 1} ||
          !std::equal(view.strides.begin(), view.strides.end() - 1, beside->strides.begin()) ||
          view.strides != whole_value(graph_, view.value).strides)
        continue;
      return join_linear(id, division, transpose, *product, *epsilon);
    }
  }

  void join_linear(NodeId id, const Node& division, const Node* transpose, const Node& product, double epsilon) {
    const Node* const q = edit_.made_by(product.inputs[0], "Relu");
    const Node* const inner = edit_.merges(product.inputs[1]) ? edit_.made_by(product.inputs[1], "MatMul") : nullptr;
    const Node* const padded = inner != nullptr ? edit_.made_by(inner->inputs[1], "Pad") : nullptr;
    if (q == nullptr || padded == nullptr || !appends_ones(*padded)) return;
    const Node* k = edit_.producer_node(inner->inputs[0]);
    const Node* const turned = transposed_last(inner->inputs[0]);
    if (turned != nullptr) k = edit_.producer_node(turned->inputs[0]);
    if (k == nullptr || k->type() != "Relu") return;
    const Shape &of_q = shape_of(product.inputs[0]), &of_v = shape_of(padded->inputs[0]);
    if (of_q.rank() != 4 || of_v.rank() != 4) return;
    const Shape shape = shape_of(graph_.node(id).outputs[0]);
    AttentionProblem p{.n = of_q[0],
                       .heads = of_q[1],
                       .queries = of_q[2],
                       .keys = of_v[2],
                       .head_size = of_q[3],
                       .value_size = of_v[3],
                       .linear_epsilon = epsilon};
    if (!(of_v == Shape{p.n, p.heads, p.keys, p.value_size}) ||
        !(shape_of(inner->outputs[0]) == Shape{p.n, p.heads, p.head_size, p.value_size + 1}))
      return;
    const auto rows_q = rows(q->inputs[0], false, of_q, of_q),
               rows_k = rows(k->inputs[0], turned == nullptr, of_q, {p.n, p.heads, p.keys, p.head_size}),
               rows_v = rows(padded->inputs[0], false, of_v, of_v),
               written = rows_of_y(division, transpose, false, shape, {p.n, p.heads, p.queries, p.value_size});
    if (!rows_q || !rows_k || !rows_v || !written) return;
    for (const auto* const read : {&rows_q, &rows_k, &rows_v})
      if ((*read)->view.factor != 1) return;
    fuse(id, p, *rows_q, *rows_k, *rows_v, *written, division.name);
  }

  /// A Pad of [N,H,S,E] by ones to [N,H,S,E+1].
  bool appends_ones(const Node& pad) const {
    const ValueId sizes = input_of(pad, 1), value = input_of(pad, 2);
    const auto mode = attribute<std::string>(*pad.op, "mode");
    if (input_of(pad, 3) != no_id || sizes == no_id || value == no_id || !graph_.value(sizes).is_constant() ||
        scalar_constant(graph_, value) != 1.0F || (mode && *mode != "constant"))
      return false;
    const auto list = graph_.value(sizes).constant.values<std::int64_t>();
    return Integers(list.begin(), list.end()) == Integers{0, 0, 0, 0, 0, 0, 0, 1};
  }

  /// Attention in the place of node `id`; false if no kernel takes it. No reference to a node may be used behind it.
  bool fuse(NodeId id, AttentionProblem& p, const Rows& q, const Rows& k, const Rows& v, const Rows& y,
            std::string name, const std::vector<ValueId>& more = {}) {
    const Shape shape = shape_of(graph_.node(id).outputs[0]);
    const std::size_t token = p.between_channels ? 3 : 2;
    p.q = operand(q.view, token), p.k = operand(k.view, token), p.v = operand(v.view, token);
    p.y = operand(y.view, token);
    const ValueId in_q = holder(q), in_k = holder(k), in_v = holder(v);
    std::vector<ValueId> inputs{in_q, in_k == in_q ? no_id : in_k, in_v == in_k ? no_id : in_v};
    inputs.insert(inputs.end(), more.begin(), more.end());
    const Shape y_shape = y.channels_last ? Shape{shape[0], shape[2], shape[3], shape[1]} : shape;
    return replace(id, make_attention_op(p, y_shape), std::move(inputs), std::move(name), y.channels_last);
  }

  /// Where known factors are one for each head.
  std::optional<std::vector<double>> head_scales(ValueId factors, std::int64_t heads) const {
    if (factors == no_id || heads > most_head_scales) return std::nullopt;
    const Shape& shape = shape_of(factors);
    if (shape.rank() < 3 || shape[shape.rank() - 3] != heads || shape.elems() != heads) return std::nullopt;
    const auto values = graph_.value(factors).constant.values<float>();
    return std::vector<double>(values.begin(), values.end());
  }
  /// What rows of Q [..,L,D] and K [..,S,D] are made unit rows of, for a product of Q and K^T; nothing unless of both.
  std::optional<std::pair<UnitRows, UnitRows>> unit_rows_of(ValueId of_q, ValueId of_k) const {
    const Node* const turned = transposed_last(of_k);
    if (turned == nullptr) return std::nullopt;
    const auto q = unit_rows(edit_, of_q), k = unit_rows(edit_, turned->inputs[0]);
    if (!q || !k || q->epsilon != k->epsilon || q->epsilon < least_qk_norm_epsilon) return std::nullopt;
    return std::pair(*q, *k);
  }

  /// Puts `op` in the place of node `id`, with a Transpose behind it where its y is in channels last; false if no
  /// kernel takes it.
  bool replace(NodeId id, std::shared_ptr<const Op> op, std::vector<ValueId> inputs, std::string name,
               bool channels_last) {
    const Node fused{.name = name, .op = op, .inputs = inputs, .outputs = {}};
    const Problem problem(op, graph_.input_infos(fused));
    const auto kernels = kernels_of("Attention", context_.target.device.kind);
    if (std::ranges::none_of(
            kernels, [&](const Kernel* kernel) { return kernel->offer(problem, context_.target).refusal.empty(); })) {
      for (const ValueId input : inputs) edit_.erase_unread(input);
      return false;
    }
    const std::vector<ValueId> old = graph_.node(id).inputs;
    if (channels_last) {
      const DType file_type = graph_.value(graph_.node(id).outputs[0]).file_type;
      inputs = {edit_.add_node(name, std::move(op), std::move(inputs), file_type)};
      op = make_transpose_op(to_channels_first);
      name += ":channels_first";
    }
    edit_.replace(id, std::move(op), std::move(inputs));
    graph_.node(id).name = std::move(name);
    for (const ValueId input : old) edit_.erase_unread(input);
    return true;
  }

  /// The value that holds the rows; one Transpose of an image for all that read it.
  ValueId holder(const Rows& rows) {
    const ValueId x = rows.view.value;
    if (!rows.channels_last) return x;
    ValueId& last = channels_last_.try_emplace(x, no_id).first->second;
    if (edit_.producer(last) == no_id)
      last = edit_.add_node(graph_.value(x).name + ":channels_last", make_transpose_op(to_channels_last), {x},
                            graph_.value(x).file_type);
    return last;
  }

  /// The Softmax that makes `id`, perhaps before a Reshape, or null.
  const Node* softmax_before(ValueId id) const {
    if (!edit_.merges(id)) return nullptr;
    if (const Node* const shaped = edit_.made_by(id, "Reshape"); shaped != nullptr && keeps_rows(*shaped))
      id = shaped->inputs[0];
    return edit_.merges(id) ? edit_.made_by(id, "Softmax") : nullptr;
  }
  /// The Transpose that makes `id` by exchanging the last two axes, or null.
  const Node* transposed_last(ValueId id) const {
    const Node* const node = edit_.made_by(id, "Transpose");
    if (node == nullptr || shape_of(id).rank() < 2) return nullptr;
    Integers swapped(static_cast<std::size_t>(shape_of(id).rank()));
    std::iota(swapped.begin(), swapped.end(), 0);
    std::swap(swapped.back(), swapped[swapped.size() - 2]);
    return integers_attribute(*node->op, "perm") == swapped ? node : nullptr;
  }
  /// A Reshape that keeps the last two axes.
  bool keeps_rows(const Node& reshape) const {
    const Shape &x = shape_of(reshape.inputs[0]), &y = shape_of(reshape.outputs[0]);
    return x.rank() >= 2 && y.rank() >= 2 && x[x.rank() - 1] == y[y.rank() - 1] && x[x.rank() - 2] == y[y.rank() - 2];
  }
  /// Whether a product of these has the batch of `a`, which may repeat `b` along whole axes (one K for all heads).
  static bool batch_of_first(const Shape& a, const Shape& b) {
    if (a.rank() != b.rank() || a.rank() < 2) return false;
    return std::equal(a.dims().begin(), a.dims().end() - 2, b.dims().begin(),
                      [](std::int64_t all, std::int64_t own) { return own == all || own == 1; });
  }

  /// Through scales, biases and Reshapes that keep [L,S], up to the product of Q and K.
  std::optional<Scores> scores_of(ValueId id, const Shape& shares) const {
    Scores scores;
    while (edit_.merges(id)) {
      const Node& node = *edit_.producer_node(id);
      const Shape& y = shape_of(id);
      if (node.type() == "MatMul") {
        scores.product = &node;
        const bool plain = y.rank() >= 2 && batch_of_first(shape_of(node.inputs[0]), shape_of(node.inputs[1]));
        return plain && (scores.computed_bias == no_id || scores.biases.empty()) ? std::optional(scores) : std::nullopt;
      }
      if (const auto product = scaled(graph_, node)) {
        scores.factor *= product->factor;
        id = product->x;
      } else if (node.type() == "Reshape") {
        // Factors have the axes of the product.
        if (!keeps_rows(node) || scores.factors != no_id) return std::nullopt;
        id = node.inputs[0];
      } else if (const auto factored = with_factors(scores, node)) {
        id = *factored;
      } else if (node.type() == "Add" && scores.factors == no_id) {
        const auto x = add_bias(scores, node, shares);
        if (!x) return std::nullopt;
        id = *x;
      } else {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  /// Takes the known factors of a Mul that are the same for all keys; the other operand, or nothing.
  std::optional<ValueId> with_factors(Scores& scores, const Node& node) const {
    if (node.type() != "Mul" || scores.factors != no_id) return std::nullopt;
    for (const std::size_t side : {1U, 0U}) {
      const Shape& shape = shape_of(node.inputs[side]);
      if (!graph_.value(node.inputs[side]).is_constant() || shape.rank() == 0 || shape[shape.rank() - 1] != 1 ||
          !(shape_of(node.inputs[1 - side]) == shape_of(node.outputs[0])))
        continue;
      scores.factors = node.inputs[side];
      return node.inputs[1 - side];
    }
    return std::nullopt;
  }

  /// Takes the bias of an Add; the other summand, which has the sum's shape, or nothing.
  std::optional<ValueId> add_bias(Scores& scores, const Node& add, const Shape& shares) const {
    const Shape& y = shape_of(add.outputs[0]);
    for (const std::size_t side : {1U, 0U}) {
      const ValueId bias = add.inputs[side], x = add.inputs[1 - side];
      if (!(shape_of(x) == y) || !graph_.value(bias).is_constant()) continue;
      scores.biases.push_back({bias, y, scores.factor});
      return x;
    }
    // A computed one as the operator takes it: of scores [N,H,L,S], [H,L,S] or [L,S].
    for (const std::size_t side : {1U, 0U}) {
      const ValueId bias = add.inputs[side], x = add.inputs[1 - side];
      const Shape& shape = shape_of(bias);
      if (!(shape_of(x) == y) || !(y == shares) || !edit_.merges(x) || y.rank() > 4 || scores.computed_bias != no_id ||
          scores.factor != 1 || shape.rank() == 0 || shape[shape.rank() - 1] != y[y.rank() - 1])
        continue;
      scores.computed_bias = bias;
      return x;
    }
    return std::nullopt;
  }

  /// The rows of an operand [..,tokens,channels], or with `columns` [..,channels,tokens], of a product whose batch is
  /// that of `beside`; with `scaled`, perhaps times a factor.
  std::optional<Rows> rows(ValueId id, bool columns, const Shape& beside, const Shape& wanted,
                           Between between = Between::tokens, bool scaled = true) const {
    if (graph_.value(id).dtype != DType::f32 || shape_of(id).elems() == 0) return std::nullopt;
    const bool repeats = shape_of(id).elems() != wanted.elems();
    for (FactoredView& found : views_of(edit_, id)) {
      const std::size_t last = found.axes.size() - 1;
      if (!scaled && found.factor != 1) continue;
      if (columns) std::swap(found.axes[last], found.axes[last - 1]);
      for (std::size_t i = 0; repeats && i + 1 < last; ++i)
        if (const std::int64_t all = beside[static_cast<int>(i)]; extent_of(found.axes[i]) != all)
          found.axes[i] = {{all, 0}};
      if (extent_of(found.axes[last]) != wanted[3] || extent_of(found.axes[last - 1]) != wanted[2] ||
          !found.reshape(wanted))
        continue;
      std::optional<StridedView> view = found.strided();
      if (!view) continue;
      if (between == Between::channels) {
        // Where they come from, which is no image: its pixels are tokens that lie side by side.
        const bool found_there = shape_of(view->value).rank() != 4 && adjacent_rows(*view);
        return found_there ? std::optional(Rows{std::move(*view)}) : std::nullopt;
      }
      if (adjacent_channels(*view)) return Rows{std::move(*view)};
      // Made by a node, and by no Reshape: the Transpose then is a matter of its format.
      const Node* const made = edit_.producer_node(view->value);
      if (made != nullptr && !is_view(*made) && to_channels_last_rows(*view, shape_of(view->value)))
        return Rows{std::move(*view), true};
    }
    return std::nullopt;
  }
  /// The rows of y in what the Transpose makes of it, if there is one; with `columns`, of its columns. `out` is the
  /// shape of the last node.
  std::optional<Rows> rows_of_y(const Node& product, const Node* transpose, bool columns, const Shape& out,
                                const Shape& wanted, Between between = Between::tokens) const {
    StridedView view = whole_value(graph_, transpose != nullptr ? transpose->outputs[0] : product.outputs[0]);
    if (transpose != nullptr) {
      const auto perm = integers_attribute(*transpose->op, "perm");
      if (!perm) return std::nullopt;
      const StridedView turned = view;
      for (std::size_t i = 0; i < perm->size(); ++i) {
        view.dims[static_cast<std::size_t>((*perm)[i])] = turned.dims[i];
        view.strides[static_cast<std::size_t>((*perm)[i])] = turned.strides[i];
      }
    }
    if (columns) {
      if (!view.reshape(shape_of(product.outputs[0]))) return std::nullopt;
      swap_last(view);
    }
    if (!view.reshape(wanted)) return std::nullopt;
    if (between == Between::channels) return adjacent_rows(view) ? std::optional(Rows{std::move(view)}) : std::nullopt;
    if (adjacent_channels(view)) return Rows{std::move(view)};
    return to_channels_last_rows(view, out) ? std::optional(Rows{std::move(view), true}) : std::nullopt;
  }
  std::vector<StridedView> strided_views_of(ValueId id) const {
    std::vector<StridedView> views;
    for (const FactoredView& view : views_of(edit_, id))
      if (auto strided = view.strided()) views.push_back(std::move(*strided));
    return views;
  }
  static void swap_last(StridedView& view) {
    std::swap(view.dims.back(), view.dims[view.dims.size() - 2]);
    std::swap(view.strides.back(), view.strides[view.strides.size() - 2]);
  }
  static bool adjacent_channels(const StridedView& rows) { return rows.strides[3] == 1 || rows.dims[3] == 1; }
  static bool adjacent_rows(const StridedView& rows) { return rows.strides[2] == 1 && rows.strides[3] > 1; }
  /// Turns rows of an image [N,C,H,W], whose tokens are its pixels, into those of [N,H,W,C]; false for others.
  static bool to_channels_last_rows(StridedView& rows, const Shape& image) {
    if (image.rank() != 4) return false;
    const std::int64_t c = image[1], pixels = image[2] * image[3];
    Integers& strides = rows.strides;
    if (strides[2] != 1 || strides[3] != pixels || rows.offset % pixels != 0 || strides[1] % pixels != 0 ||
        strides[0] % (c * pixels) != 0 || (rows.offset + (rows.dims[1] - 1) * strides[1]) / pixels + rows.dims[3] > c)
      return false;
    rows.offset /= pixels;
    strides = {strides[0], strides[1] / pixels, c, 1};
    return true;
  }
  static AttentionOperand operand(const StridedView& view, std::size_t token_axis) {
    return {view.offset, view.strides[0], view.strides[1], view.strides[token_axis]};
  }

  Graph& graph_;
  const PassContext& context_;
  GraphEdit edit_;
  std::map<ValueId, ValueId> channels_last_;  ///< Transposes of images that were made
};

}  // namespace

void fuse_attention(Graph& graph, const PassContext& context) { Heads(graph, context).run(); }

}  // namespace lenslet
