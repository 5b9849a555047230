#include "runtime/passes/epilogue.h"

#include <utility>

namespace lenslet {

void merge_into(GraphEdit& edit, NodeId node, NodeId producer, std::shared_ptr<const Op> op,
                std::vector<ValueId> inputs) {
  edit.graph().node(node).name = edit.graph().node(producer).name;
  edit.graph().node(node).note = edit.graph().node(producer).note;
  edit.replace(node, std::move(op), std::move(inputs));
  edit.erase(producer);
}

void merge_activation(GraphEdit& edit, NodeId node) {
  const Node& reader = edit.graph().node(node);
  const ValueId x = input_of(reader, 0);
  if (!edit.merges(x)) return;
  const NodeId producer = edit.producer(x);
  const Node& made_by = edit.graph().node(producer);
  const Epilogue* epilogue = made_by.op->epilogue();
  if (!takes_more(epilogue)) return;
  const auto activation = reader.op->as_activation(edit.graph().input_infos(reader));
  if (!activation) return;
  Epilogue changed = *epilogue;
  changed.activation = *activation;
  merge_into(edit, node, producer, made_by.op->with_epilogue(std::move(changed)), made_by.inputs);
}

}  // namespace lenslet
