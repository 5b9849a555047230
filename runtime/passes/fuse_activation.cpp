// fuse_activation: merges activations spelled out in several nodes, and moves an activation that is the only reader of
// a Conv or Gemm into its epilogue.
#include "runtime/passes/behind_moves.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/epilogue.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/spelled_activations.h"

namespace lenslet {

void fuse_activation(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (const auto& join : {join_spelled_activation, merge_activation, merge_activation_behind_concats})
    for (const NodeId n : edit.nodes())
      if (!edit.erased(n)) join(edit, n);
  edit.finish();
}

}  // namespace lenslet
