#pragma once
// Shape inference of one node: the step that infer_shapes and free_batch share.

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// Bytes of results that are computed before the run: of one node during shape inference (shape arithmetic is a few
/// bytes, a weight that an exporter writes as Constant + Transpose a few MiB), of one node in the pass fold_constants
/// (VGG-19's first fully connected layer, written as ConstantOfShape by onnx-light, has 392 MiB), and of all nodes.
/// Larger results are left to the run. docs/limits.md publishes them.
inline constexpr std::size_t inference_node_bytes = std::size_t{64} << 20;
inline constexpr std::size_t folding_node_bytes = std::size_t{512} << 20;
inline constexpr std::size_t evaluated_total_bytes = std::size_t{4} << 30;

class NodeInference {
 public:
  /// Constants are evaluated up to `node_limit_bytes` of results a node, and `total_bytes` in all; the first limit does
  /// not apply if the results are at most `growth` times as large as the node's constant inputs (a reshaped,
  /// transposed, cast or dequantised weight).
  NodeInference(Graph& graph, std::size_t node_limit_bytes, std::size_t total_bytes = evaluated_total_bytes)
      : graph_(graph), pool_(1), node_limit_bytes_(node_limit_bytes), bytes_left_(total_bytes) {}
  static constexpr std::size_t growth = 4;

  /// Infers the output types of `node`, whose inputs are typed. Errors as thrown by the op.
  void infer(const Node& node);
  /// After infer: computes the outputs if they can be known now and stores them as constants. If true, the caller
  /// removes the node.
  bool evaluate(const Node& node);

 private:
  bool fits(const Node& node, std::size_t result_bytes) const;

  Graph& graph_;
  ThreadPool pool_;
  std::size_t node_limit_bytes_;
  std::size_t bytes_left_;
};

}  // namespace lenslet
