#include "runtime/passes/epilogue.h"

#include <utility>

#include "ops/conv/conv.h"
#include "ops/elementwise/unary.h"
#include "ops/gemm/gemm_op.h"

namespace lenslet {
namespace {

/// The Conv or Gemm with the activation applied to its result; null for other ops, or when one is applied already.
std::shared_ptr<const Op> with_activation(const Op& op, const Activation& activation) {
  if (const auto* conv = dynamic_cast<const ConvOp*>(&op); conv && conv->activation.kind == Activation::Kind::none) {
    auto merged = std::make_shared<ConvOp>(*conv);
    merged->activation = activation;
    return merged;
  }
  if (const auto* gemm = dynamic_cast<const GemmOp*>(&op); gemm && gemm->activation.kind == Activation::Kind::none) {
    auto merged = std::make_shared<GemmOp>(*gemm);
    merged->activation = activation;
    return merged;
  }
  return nullptr;
}

}  // namespace

void merge_into(GraphEdit& edit, NodeId node, NodeId producer, std::shared_ptr<const Op> op,
                std::vector<ValueId> inputs) {
  edit.graph().node(node).name = edit.graph().node(producer).name;
  edit.replace(node, std::move(op), std::move(inputs));
  edit.erase(producer);
}

bool merge_activation(GraphEdit& edit, NodeId node) {
  const Node& reader = edit.graph().node(node);
  if (reader.inputs.empty() || reader.inputs[0] == no_id || !edit.merges(reader.inputs[0])) return false;
  const auto activation = as_activation(*reader.op, edit.graph().input_infos(reader));
  if (!activation) return false;
  const NodeId producer = edit.producer(reader.inputs[0]);
  auto merged = with_activation(*edit.graph().node(producer).op, *activation);
  if (!merged) return false;
  merge_into(edit, node, producer, std::move(merged), edit.graph().node(producer).inputs);
  return true;
}

}  // namespace lenslet
