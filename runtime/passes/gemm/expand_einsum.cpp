// expand_einsum: an Einsum of float32 becomes Transposes, Reshapes and products (MatMul, or Mul where nothing is
// summed), operand by operand from the left, as these have fast kernels. Axes of a single operand that are summed are
// reduced first. Diagonals and broadcast axes stay an Einsum.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm/equation.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

using Dims = std::vector<std::int64_t>;

bool has(const AxisLabels& labels, int label) { return std::ranges::find(labels, label) != labels.end(); }
AxisLabels joined(AxisLabels a, const AxisLabels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A tensor whose axes have labels.
struct Labelled {
  ValueId id = no_id;
  AxisLabels labels;
};

class Expansion {
 public:
  Expansion(Graph& graph, const Node& einsum, std::vector<Node>& nodes)
      : graph_(graph), einsum_(einsum), nodes_(nodes) {}

  /// Adds the nodes that compute the Einsum's output; false if it adds none.
  bool run() {
    const auto text = attribute<std::string>(*einsum_.op, "equation");
    if (graph_.value(einsum_.outputs[0]).dtype != DType::f32 || !text) return false;
    std::vector<int> ranks;
    for (const ValueId id : einsum_.inputs) ranks.push_back(graph_.value(id).shape.rank());
    labels_ = axis_labels(parse_equation(*text), ranks);
    if (!sizes_agree() || !stays_small()) return false;

    Labelled x{einsum_.inputs[0], labels_[0]};
    const std::size_t last = einsum_.inputs.size() - 1;
    for (std::size_t i = 0; i <= last; ++i) {
      Labelled next{einsum_.inputs[i], labels_[i]};
      // Labels that only these two operands have are summed now.
      const auto wanted = [&](int label) {
        return std::any_of(labels_.begin() + static_cast<std::ptrdiff_t>(i) + 1, labels_.end(),
                           [&](const AxisLabels& later) { return has(later, label); });
      };
      if (i == 0) {
        x = summed(std::move(x), [&](int label) { return wanted(label); });
        continue;
      }
      next = summed(std::move(next), [&](int label) { return wanted(label) || has(x.labels, label); });
      AxisLabels result = joined(x.labels, {});
      for (const int label : next.labels)
        if (!has(result, label)) result.push_back(label);
      std::erase_if(result, [&](int label) { return !wanted(label); });
      x = product(x, next, i == last ? labels_.back() : result);
    }
    finish(transposed(x, labels_.back()));
    return true;
  }

 private:
  /// One size per label, each label once per operand, and every result label in some operand.
  bool sizes_agree() {
    for (std::size_t i = 0; i < einsum_.inputs.size(); ++i) {
      const Shape& shape = graph_.value(einsum_.inputs[i]).shape;
      for (std::size_t d = 0; d < labels_[i].size(); ++d) {
        const std::int64_t size = shape[static_cast<int>(d)];
        if (std::ranges::count(labels_[i], labels_[i][d]) > 1 || size == 0 ||
            sizes_.emplace(labels_[i][d], size).first->second != size)
          return false;
      }
    }
    return std::ranges::all_of(labels_.back(), [&](int label) { return sizes_.contains(label); });
  }
  std::int64_t elems(const AxisLabels& labels) const {
    std::int64_t count = 1;
    for (const int label : labels) count *= sizes_.at(label);
    return count;
  }
  /// For three and more operands: whether no intermediate product is larger than the inputs and output.
  bool stays_small() const {
    std::int64_t most = elems(labels_.back());
    for (std::size_t i = 0; i + 1 < labels_.size(); ++i) most = std::max(most, elems(labels_[i]));
    AxisLabels so_far;
    for (std::size_t i = 0; i + 2 < labels_.size(); ++i) {
      for (const int label : labels_[i])
        if (!has(so_far, label)) so_far.push_back(label);
      std::erase_if(so_far, [&](int label) {
        return std::none_of(labels_.begin() + static_cast<std::ptrdiff_t>(i) + 1, labels_.end(),
                            [&](const AxisLabels& later) { return has(later, label); });
      });
      if (i > 0 && (elems(so_far) > most || so_far.size() > Shape::max_rank)) return false;
    }
    return true;
  }

  ValueId add(std::string_view type, std::vector<ValueId> inputs, const AttributeList& attributes) {
    Node node{.name = einsum_.name + ":" + std::to_string(nodes_.size()),
              .op = make_normalised_op(type, attributes, inputs.size()),
              .inputs = std::move(inputs),
              .outputs = {}};
    const TensorType y = infer_types(*node.op, graph_.input_infos(node))[0];
    const ValueId id = graph_.add_value(node.name);
    graph_.value(id).dtype = y.dtype;
    graph_.value(id).shape = y.shape;
    graph_.value(id).typed = true;
    node.outputs = {id};
    nodes_.push_back(std::move(node));
    return id;
  }
  ValueId numbers(const Dims& values) {
    return graph_.add_constant(
        einsum_.name + ":numbers",
        Tensor::of<std::int64_t>(Shape{static_cast<std::int64_t>(values.size())}, std::span(values)));
  }

  Labelled transposed(const Labelled& x, const AxisLabels& to) {
    if (x.labels == to) return x;
    Dims perm;
    for (const int label : to) perm.push_back(std::ranges::find(x.labels, label) - x.labels.begin());
    return {add("Transpose", {x.id}, {{"perm", perm}}), to};
  }
  ValueId reshaped(ValueId x, const Dims& dims) {
    if (graph_.value(x).shape == Shape(dims)) return x;
    return add("Reshape", {x, numbers(dims)}, {{"allowzero", std::int64_t{1}}});
  }
  template <typename Kept>
  Labelled summed(Labelled x, const Kept& kept) {
    Dims axes;
    for (std::size_t d = 0; d < x.labels.size(); ++d)
      if (!kept(x.labels[d])) axes.push_back(static_cast<std::int64_t>(d));
    if (axes.empty()) return x;
    std::erase_if(x.labels, [&](int label) { return !kept(label); });
    x.id = add("ReduceSum", {x.id}, {{"axes", axes}, {"keepdims", std::int64_t{0}}});
    return x;
  }

  /// The labels of `result`, in an order that is cheap for the product.
  Labelled product(Labelled a, Labelled b, const AxisLabels& result) {
    AxisLabels batch, rows, columns, inner;
    for (const int label : result)
      (has(a.labels, label) && has(b.labels, label) ? batch : has(a.labels, label) ? rows : columns).push_back(label);
    // In the order of the operand, which then needs no Transpose.
    const AxisLabels& order = b.labels.size() > a.labels.size() ? b.labels : a.labels;
    for (const int label : order)
      if (!has(result, label)) inner.push_back(label);
    if (inner.empty()) return {multiplied(a, b, result), result};
    // Batched dot products: a matrix product would have a single row and column.
    if (rows.empty() && columns.empty() && !batch.empty()) {
      const AxisLabels both = joined(result, inner);
      return summed({multiplied(a, b, both), both}, [&](int label) { return has(result, label); });
    }
    const auto place = [&](const AxisLabels& some) {
      return some.empty() ? result.begin() : std::ranges::find(result, some.back());
    };
    if (!rows.empty() && !columns.empty() && place(columns) < place(rows)) {
      std::swap(a, b);
      std::swap(rows, columns);
    }
    const std::int64_t count = elems(batch), m = elems(rows), n = elems(columns), k = elems(inner);
    const auto left = transposed(a, joined(joined(batch, rows), inner)).id;
    const auto right = transposed(b, joined(joined(batch, inner), columns)).id;
    const bool one = batch.empty();
    const ValueId y = add(
        "MatMul",
        {reshaped(left, one ? Dims{m, k} : Dims{count, m, k}), reshaped(right, one ? Dims{k, n} : Dims{count, k, n})},
        {});
    const AxisLabels labels = joined(joined(batch, rows), columns);
    Dims dims;
    for (const int label : labels) dims.push_back(sizes_.at(label));
    return {reshaped(y, dims), labels};
  }
  /// Nothing is summed: both operands in the order of the result, with size 1 for missing axes.
  ValueId multiplied(const Labelled& a, const Labelled& b, const AxisLabels& result) {
    const auto spread = [&](const Labelled& x) {
      AxisLabels own;
      Dims dims;
      for (const int label : result) {
        const bool there = has(x.labels, label);
        if (there) own.push_back(label);
        dims.push_back(there ? sizes_.at(label) : 1);
      }
      return reshaped(transposed(x, own).id, dims);
    };
    return add("Mul", {spread(a), spread(b)}, {});
  }

  /// The last node makes the Einsum's output; an Einsum that returns its operand (i->i) becomes an Identity.
  void finish(const Labelled& y) {
    const bool made = !nodes_.empty() && nodes_.back().outputs[0] == y.id;
    if (!made) add("Identity", {y.id}, {});
    nodes_.back().outputs = {einsum_.outputs[0]};
  }

  Graph& graph_;
  const Node& einsum_;
  std::vector<Node>& nodes_;
  std::vector<AxisLabels> labels_;  ///< of the operands and of the result
  std::map<int, std::int64_t> sizes_;
};

}  // namespace

void expand_einsum(Graph& graph, const PassContext&) {
  std::vector<Node> all;
  for (Node& node : std::exchange(graph.nodes, {})) {
    std::vector<Node> made;
    if (node.type() == "Einsum" && Expansion(graph, node, made).run())
      std::ranges::move(made, std::back_inserter(all));
    else
      all.push_back(std::move(node));
  }
  graph.nodes = std::move(all);
}

}  // namespace lenslet
