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
  ValueId x = input_of(reader, 0);
  if (!edit.merges(x)) return;
  const auto moves = [](const Node& mover) { return is_view(mover) || mover.type() == "Transpose"; };
  const NodeId last_move = moves(*edit.producer_node(x)) ? edit.producer(x) : no_id;
  while (edit.merges(x) && moves(*edit.producer_node(x))) x = edit.producer_node(x)->inputs[0];
  if (!edit.merges(x)) return;
  const Node& made_by = *edit.producer_node(x);
  const Epilogue* epilogue = made_by.op->epilogue();
  if (!takes_more(epilogue)) return;
  const auto activation = reader.op->as_activation(edit.graph().input_infos(reader));
  if (!activation) return;
  Epilogue changed = *epilogue;
  changed.activation = *activation;
  auto op = made_by.op->with_epilogue(std::move(changed));
  if (op == nullptr) return;  // it takes no activation
  if (last_move == no_id) return merge_into(edit, node, edit.producer(x), std::move(op), made_by.inputs);
  edit.replace(edit.producer(x), std::move(op), made_by.inputs);
  const Node& move = edit.graph().node(last_move);
  merge_into(edit, node, last_move, move.op, move.inputs);
}

}  // namespace lenslet
