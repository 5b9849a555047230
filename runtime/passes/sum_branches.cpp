// sum_branches: selective kernels (SKNet) and split attention (ResNeSt) stack R branches to [N,R,C,H,W], take their
// sum, multiply each by its own factor for each channel, and sum again. The branches are added as images instead, which
// have formats, and nothing of five axes is written.
//
// X. Li et al., "Selective Kernel Networks", 2019; H. Zhang et al., "ResNeSt: Split-Attention Networks", 2020.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/reduced_axes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

/// More are summed as they are.
constexpr std::int64_t most_branches = 4;

/// A sum of branches [N,R,C,H,W] over R, perhaps each times its factors [N,R,C,1,1].
struct Sum {
  ValueId stack = no_id, factors = no_id;
};

class BranchSums {
 public:
  explicit BranchSums(Graph& graph) : graph_(graph), edit_(graph) {}

  void run() {
    for (const NodeId id : edit_.nodes())
      if (!edit_.erased(id)) mean_first(id);
    for (const NodeId id : edit_.nodes())
      if (!edit_.erased(id)) add_branches(id);
    edit_.finish();
  }

 private:
  const Shape& shape_of(ValueId id) const { return graph_.value(id).shape; }

  std::optional<Sum> sum(const Node* node) const {
    if (node == nullptr || node->type() != "ReduceSum" || keeps_axes(*node)) return std::nullopt;
    Sum found{.stack = node->inputs[0]};
    const Shape& shape = shape_of(found.stack);
    if (shape.rank() != 5 || shape[1] < 2 || shape[1] > most_branches || shape.elems() == 0 ||
        graph_.value(found.stack).dtype != DType::f32 || reduced_axes(graph_, *node) != std::vector<std::int64_t>{1})
      return std::nullopt;
    const Node* const product = edit_.merges(found.stack) ? edit_.made_by(found.stack, "Mul") : nullptr;
    if (product == nullptr) return found;
    const Shape each_channel{shape[0], shape[1], shape[2], 1, 1};
    for (const std::size_t side : {0U, 1U})
      if (shape_of(product->inputs[side]) == shape && shape_of(product->inputs[1 - side]) == each_channel)
        return Sum{product->inputs[side], product->inputs[1 - side]};
    return std::nullopt;
  }

  /// The image [N,R*C,H,W] whose groups of channels are the branches, or no_id.
  ValueId image_of(ValueId stack) const {
    const Node* const node = edit_.producer_node(stack);
    if (node == nullptr || !is_view(*node)) return no_id;
    const Shape &all = shape_of(stack), &image = shape_of(node->inputs[0]);
    return image == Shape{all[0], all[1] * all[2], all[3], all[4]} ? node->inputs[0] : no_id;
  }

  /// The branches [N,C,H,W] that a Concat stacks, or the groups of an image's channels; empty for others.
  std::vector<ValueId> branches_of(ValueId stack) {
    const Shape all = shape_of(stack), one{all[0], all[2], all[3], all[4]};
    std::vector<ValueId> branches;
    if (const Node* const concat = edit_.made_by(stack, "Concat")) {
      if (const auto axis = integer_attribute(*concat->op, "axis"); axis != 1 && axis != -4) return {};
      for (const ValueId part : concat->inputs) {
        const Node* const node = edit_.producer_node(part);
        if (node == nullptr || !is_view(*node) || !(shape_of(node->inputs[0]) == one)) return {};
        branches.push_back(node->inputs[0]);
      }
      return branches;
    }
    const ValueId image = image_of(stack);
    return image == no_id ? branches : parts(image, all[1]);
  }

  /// `count` equal parts along axis 1; one Split for all that ask.
  const std::vector<ValueId>& parts(ValueId x, std::int64_t count) {
    std::vector<ValueId>& made = parts_[{x, count}];
    if (!made.empty()) return made;
    const std::string name = graph_.value(x).name + ":branches";
    const AttributeList attributes{{"axis", std::int64_t{1}}, {"num_outputs", count}};
    const DType file_type = graph_.value(x).file_type;
    made.push_back(edit_.add_node(name, make_normalised_op("Split", attributes, 1, static_cast<std::size_t>(count)),
                                  {x}, file_type));
    const NodeId split = edit_.producer(made[0]);
    while (std::ssize(made) < count)
      made.push_back(edit_.add_value_like(name + std::to_string(made.size()), graph_.value(made[0])));
    edit_.set_outputs(split, made);
    return made;
  }

  ValueId reshaped(ValueId x, const Shape& to) {
    const std::string name = graph_.value(x).name + ":shape";
    const DType file_type = graph_.value(x).file_type;
    return edit_.add_node(name, make_reshape_op(), {x, edit_.add_sizes(name, to.dims())}, file_type);
  }

  /// The mean over H and W of a sum of an image's groups: the sum of their means.
  void mean_first(NodeId id) {
    const Node& mean = graph_.node(id);
    const bool global = mean.type() == "GlobalAveragePool";
    if (!global && (mean.type() != "ReduceMean" || !keeps_axes(mean) ||
                    reduced_axes(graph_, mean) != std::vector<std::int64_t>{2, 3}))
      return;
    const ValueId summed = mean.inputs[0];
    const auto found = edit_.merges(summed) ? sum(edit_.producer_node(summed)) : std::nullopt;
    const ValueId image = found && found->factors == no_id ? image_of(found->stack) : no_id;
    if (image == no_id) return;
    const Shape all = shape_of(found->stack);
    const std::shared_ptr<const Op> sum_op = edit_.producer_node(summed)->op, mean_op = mean.op;
    std::vector<ValueId> sum_inputs = edit_.producer_node(summed)->inputs, mean_inputs = mean.inputs;
    mean_inputs[0] = image;
    const ValueId means =
        edit_.add_node(mean.name + ":branches", mean_op, mean_inputs, graph_.value(mean.outputs[0]).file_type);
    sum_inputs[0] = reshaped(means, {all[0], all[1], all[2], 1, 1});
    edit_.replace(id, sum_op, std::move(sum_inputs));
    edit_.erase_unread(summed);
  }

  void add_branches(NodeId id) {
    const auto found = sum(&graph_.node(id));
    if (!found || shape_of(found->stack)[3] * shape_of(found->stack)[4] == 1) return;  // one small step as it is
    const std::vector<ValueId> branches = branches_of(found->stack);
    if (branches.empty()) return;
    const Shape all = shape_of(found->stack);
    std::vector<ValueId> terms = branches;
    const std::string name = graph_.node(id).name;
    const ValueId old = graph_.node(id).inputs[0];
    const DType file_type = graph_.value(old).file_type;
    if (found->factors != no_id) {
      const std::vector<ValueId> factors = parts(found->factors, all[1]);
      for (std::size_t i = 0; i < terms.size(); ++i)
        terms[i] = edit_.add_node(name + ":weighted", make_normalised_op("Mul", {}, 2),
                                  {branches[i], reshaped(factors[i], {all[0], all[2], 1, 1})}, file_type);
    }
    const auto add = make_normalised_op("Add", {}, 2);
    ValueId first = terms[0];
    for (std::size_t i = 1; i + 1 < terms.size(); ++i)
      first = edit_.add_node(name + ":partial", add, {first, terms[i]}, file_type);
    edit_.replace(id, add, {first, terms.back()});
    edit_.erase_unread(old);
  }

  Graph& graph_;
  GraphEdit edit_;
  std::map<std::pair<ValueId, std::int64_t>, std::vector<ValueId>> parts_;  ///< by value and count
};

}  // namespace

void sum_branches(Graph& graph, const PassContext&) { BranchSums(graph).run(); }

}  // namespace lenslet
