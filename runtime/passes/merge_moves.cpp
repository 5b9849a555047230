// merge_moves: steps that together only move rows of one value (row_moves.h) become one Gather of rows. Runs where
// formats are known: values in nhwc are left alone, and with them the networks of convolutions.
#include <memory>
#include <string>
#include <utility>

#include "runtime/passes/passes.h"
#include "runtime/passes/row_moves.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

/// On a CPU a gather of rows of 16 bytes takes as long as the five copies of a roll and a partition, of 32 half as
/// long.
constexpr std::int64_t least_row_bytes = 32;

class Merger {
 public:
  explicit Merger(Graph& graph, const Target& target) : graph_(graph), target_(target), edit_(graph) {}

  void run() {
    for (NodeId end = static_cast<NodeId>(graph_.nodes.size()); end-- > 0 && !moves_.done();)
      if (const auto move = moves_.ending_at(end, 2, least_row_bytes)) replace(*move);
    edit_.finish();
  }

 private:
  void replace(const RowMove& rows) {
    const NodeId end = rows.steps.front();
    ValueId x = rows.x;
    const std::string name = graph_.node(end).name;
    const Shape y = graph_.value(graph_.node(end).outputs[0]).shape;
    if (rows.x_rows > 1 || rows.table.size() > 1) {
      const std::int64_t view[] = {rows.images, rows.x_rows, rows.row};
      const ValueId table = edit_.add_constant(
          name + ":table", Tensor::of<std::int32_t>({std::ssize(rows.table)}, std::span(rows.table)));
      x = edit_.add_node(name + ":view", make_reshape_op(), {x, edit_.add_sizes(name + ":rows", view)});
      x = edit_.add_node(name + ":rows", make_normalised_op("Gather", {{"axis", std::int64_t{1}}}, 2), {x, table});
      Node& gather = graph_.nodes.back();
      const Problem problem(gather.op, graph_.input_infos(gather), graph_.output_types(gather));
      Choice choice{.kernel = kernels_of("Gather", target_.device.kind).front()};
      choice.candidate = choice.kernel->offer(problem, target_).candidates.front();
      gather.choice = std::make_shared<const Choice>(std::move(choice));
    }
    edit_.replace(end, make_reshape_op(), {x, edit_.add_sizes(name + ":shape", y.dims())});
    graph_.node(end).choice = nullptr;
    for (const NodeId id : std::span(rows.steps).subspan(1)) edit_.erase(id);
  }

  Graph& graph_;
  const Target& target_;
  GraphEdit edit_;
  RowMoves moves_{edit_};
};

}  // namespace

void merge_moves(Graph& graph, const PassContext& context) { Merger(graph, context.target).run(); }

}  // namespace lenslet
