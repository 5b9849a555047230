// share_neighbours: if several sparse convolutions would each build the same neighbour table from a rulebook, the
// rulebook's step builds it once, as a value of its own (docs/sparse.md). The table of a constant rulebook is constant.
// Runs after the choice, which it keeps: the chosen kernel is asked again for the convolution with the table.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/sparse/sparse_conv.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// The node's candidate with a table of `rows` rows, if it takes less time.
std::optional<Candidate> with_table(const Graph& graph, const Node& node, const Target& target) {
  const auto& op = static_cast<const SparseConvOp&>(*node.op);
  std::vector<InputInfo> inputs = graph.input_infos(node);
  const SparseConvProblem p = op.problem(inputs);
  if (p.inverse) return std::nullopt;  // a table maps to the rulebook's outputs
  const TensorType table{DType::i32, {p.taps, neighbour_rows(p.max_outputs)}};
  inputs.resize(SparseConvOp::neighbours);
  inputs.push_back({true, table, nullptr});
  const Candidate& chosen = node.choice->candidate;
  const Offer offer = node.choice->kernel->offer(Problem(node.op, inputs, graph.output_types(node)), target);
  for (const Candidate& candidate : offer.candidates)
    if (candidate.config == chosen.config && candidate.estimated_us < chosen.estimated_us) return candidate;
  return std::nullopt;
}

/// Neighbour tables by rulebook, each built once.
class Tables {
 public:
  Tables(GraphEdit& edit, const Target& target) : edit_(edit), target_(target) {}

  /// The table of the rulebook that `conv` reads, or no_id.
  ValueId of(const Node& conv) {
    const SparseConvProblem p = static_cast<const SparseConvOp&>(*conv.op).problem(graph().input_infos(conv));
    const ValueId rulebook = conv.inputs[SparseConvOp::rulebook];
    const auto [found, is_new] = made_.try_emplace({rulebook, p.submanifold, p.taps}, no_id);
    if (is_new) found->second = make(rulebook, p);
    return found->second;
  }

 private:
  Graph& graph() { return edit_.graph(); }

  ValueId make(ValueId rulebook, const SparseConvProblem& p) {
    const NodeId maker = edit_.producer(rulebook);
    if (maker != no_id && graph().node(maker).type() == "SparseRulebook") return make_along(maker, p);
    if (!graph().value(rulebook).is_constant()) return no_id;
    try {
      const RulebookView book(graph().value(rulebook).constant, p.taps, p.submanifold, false, p.max_inputs,
                              p.max_outputs);
      Tensor table(DType::i32, {p.taps, neighbour_rows(p.max_outputs)});
      write_neighbours(book, p.taps, table.shape()[1], table.values<std::int32_t>().data());
      return edit_.add_constant(graph().value(rulebook).name + "/neighbours", std::move(table));
    } catch (const Error&) {  // the run reports the error
      return no_id;
    }
  }

  ValueId make_along(NodeId id, const SparseConvProblem& p) {
    const Op& without = *graph().node(id).op;
    const std::vector<InputInfo> inputs = graph().input_infos(graph().node(id));
    const bool submanifold = attribute<std::string>(without, "kind") == "submanifold";
    const std::size_t at = submanifold ? 1 : 2;
    auto op = with_attributes(without, {{"neighbours", std::int64_t{1}}}, inputs.size(), at + 1);
    const std::vector<TensorType> types = op->infer(inputs);
    if (submanifold != p.submanifold || types[at].shape[0] != p.taps) return no_id;  // not this layer's rulebook
    std::vector<ValueId> outputs = graph().node(id).outputs;
    for (std::size_t i = outputs.size(); i <= at; ++i)
      outputs.push_back(add(graph().node(id).name + (i == at ? "/neighbours" : "/sites"), types[i]));
    edit_.replace(id, std::move(op), graph().node(id).inputs);
    edit_.set_outputs(id, outputs);
    Node& node = graph().node(id);
    const Problem problem(node.op, graph().input_infos(node), types);
    node.choice = std::make_shared<const Choice>(choose_kernel(problem, target_, node.op->describe(problem.inputs())));
    return outputs.back();
  }

  ValueId add(std::string name, const TensorType& type) {
    Value model;
    model.dtype = type.dtype;
    model.shape = type.shape;
    model.typed = true;
    return edit_.add_value_like(std::move(name), model);
  }

  GraphEdit& edit_;
  const Target& target_;
  std::map<std::tuple<ValueId, bool, std::int64_t>, ValueId> made_;
};

}  // namespace

void share_neighbours(Graph& graph, const PassContext& context) {
  if (context.target.device.kind != DeviceKind::cuda) return;
  GraphEdit edit(graph);
  Tables tables(edit, context.target);
  for (const NodeId id : edit.nodes()) {
    if (graph.node(id).type() != "SparseConv") continue;
    std::optional<Candidate> candidate = with_table(graph, graph.node(id), context.target);
    if (!candidate) continue;
    const ValueId table = tables.of(graph.node(id));
    if (table == no_id) continue;
    std::vector<ValueId> inputs = graph.node(id).inputs;
    inputs.resize(SparseConvOp::neighbours, no_id);
    inputs.push_back(table);
    edit.replace(id, graph.node(id).op, std::move(inputs));
    set_candidate(graph.node(id), std::move(*candidate));
  }
  edit.finish();
}

}  // namespace lenslet
