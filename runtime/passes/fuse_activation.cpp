// fuse_activation: activations spelled out in several nodes become one, and each that alone reads a Conv or Gemm moves
// into its epilogue.
#include "runtime/passes/edit.h"
#include "runtime/passes/epilogue.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/spelled_activations.h"

namespace lenslet {

void fuse_activation(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (!edit.erased(static_cast<NodeId>(n))) join_spelled_activation(edit, static_cast<NodeId>(n));
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (!edit.erased(static_cast<NodeId>(n))) merge_activation(edit, static_cast<NodeId>(n));
  edit.finish();
}

}  // namespace lenslet
