// Step of lower_quantized: int8 activations become uint8, code and zero point plus 128.

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "runtime/passes/quantized/linear.h"
#include "runtime/passes/quantized/moved_inputs.h"

namespace lenslet {
namespace {

/// Codes that a node reads (an input) or makes (output 0), whose zero point is another input.
struct Slot {
  std::string_view op;
  bool made = false;
  std::size_t input = 0, zero_point = 0;
};
constexpr Slot slots[] = {{"QuantizeLinear", true, 0, 2}, {"DequantizeLinear", false, 0, 2},
                          {"QLinearConv", false, 0, 2},   {"QLinearConv", true, 0, 7},
                          {"QLinearMatMul", false, 0, 2}, {"QLinearMatMul", true, 0, 7},
                          {"MatMulInteger", false, 0, 2}, {"ConvInteger", false, 0, 2}};

Tensor flipped(const Tensor& codes) {
  Tensor result(DType::u8, codes.shape());
  const auto* const from = static_cast<const std::uint8_t*>(codes.data());
  std::transform(from, from + codes.elems(), static_cast<std::uint8_t*>(result.data()),
                 [](std::uint8_t code) { return static_cast<std::uint8_t>(code ^ 0x80); });
  return result;
}

class Unsigned {
 public:
  explicit Unsigned(GraphEdit& edit) : edit_(edit), group_(edit.graph().values.size()), stays_(group_.size(), false) {
    std::iota(group_.begin(), group_.end(), ValueId{0});
  }

  void run() {
    // Values that a node only moves have one type; those that a node without a slot reads or makes stay.
    for (const ValueId id : edit_.graph().inputs) keep(id);
    for (const ValueId id : edit_.graph().outputs) keep(id);
    for (const NodeId n : edit_.nodes())
      if (!edit_.erased(n)) look_at(edit_.graph().node(n));
    for (const NodeId n : edit_.nodes())
      if (!edit_.erased(n)) flip(n);
    for (std::size_t v = 0; v < group_.size(); ++v)
      if (flips(static_cast<ValueId>(v))) edit_.graph().values[v].dtype = DType::u8;
  }

 private:
  bool is_signed(ValueId id) const {
    return id != no_id && edit_.graph().value(id).dtype == DType::i8 && !edit_.graph().value(id).is_constant();
  }
  ValueId root(ValueId id) {
    while (group_[static_cast<std::size_t>(id)] != id) {
      ValueId& above = group_[static_cast<std::size_t>(id)];
      above = group_[static_cast<std::size_t>(above)];
      id = above;
    }
    return id;
  }
  void keep(ValueId id) {
    if (id != no_id) stays_[static_cast<std::size_t>(root(id))] = true;
  }
  void join(ValueId a, ValueId b) {
    const bool stay = stays_[static_cast<std::size_t>(root(a))] || stays_[static_cast<std::size_t>(root(b))];
    group_[static_cast<std::size_t>(root(a))] = root(b);
    stays_[static_cast<std::size_t>(root(b))] = stay;
  }
  bool flips(ValueId id) { return is_signed(id) && !stays_[static_cast<std::size_t>(root(id))]; }

  /// Whether the zero point is known, and one for all.
  bool has_slot(const Node& node, bool made, std::size_t input) const {
    return std::ranges::any_of(slots, [&](const Slot& slot) {
      if (slot.op != node.type() || slot.made != made || (!made && slot.input != input)) return false;
      const ValueId zero = input_of(node, slot.zero_point);
      const ValueId scale = input_of(node, slot.zero_point - 1);  // MatMulInteger, ConvInteger: their weights
      const bool with_scale = node.type() != "MatMulInteger" && node.type() != "ConvInteger";
      const Graph& graph = edit_.graph();
      return (zero == no_id || (graph.value(zero).is_constant() && graph.value(zero).constant.elems() == 1)) &&
             (!with_scale || graph.value(scale).shape.elems() == 1);
    });
  }

  void look_at(const Node& node) {
    const std::vector<std::size_t> moved = moved_inputs(edit_, node);
    if (!moved.empty() && is_signed(node.outputs[0])) {
      for (const ValueId output : node.outputs)
        if (output != no_id && is_signed(output)) join(output, node.outputs[0]);
      for (const std::size_t i : moved)
        if (is_signed(input_of(node, i))) join(node.inputs[i], node.outputs[0]);
      return;
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (is_signed(node.inputs[i]) && !has_slot(node, false, i)) keep(node.inputs[i]);
    for (const ValueId output : node.outputs)
      if (is_signed(output) && !has_slot(node, true, 0)) keep(output);
  }

  void flip(NodeId id) {
    const Node& node = edit_.graph().node(id);
    std::vector<ValueId> inputs = node.inputs;
    bool changes = false;
    for (const Slot& slot : slots) {
      if (slot.op != node.type() || !flips(slot.made ? node.outputs[0] : node.inputs[slot.input])) continue;
      changes = true;
      inputs.resize(std::max(inputs.size(), slot.zero_point + 1), no_id);
      inputs[slot.zero_point] = flipped_constant(inputs[slot.zero_point]);
    }
    const std::vector<std::size_t> moved = moved_inputs(edit_, node);
    if (!moved.empty() && flips(node.outputs[0])) {
      changes = true;
      inputs.resize(std::max(inputs.size(), moved.back() + 1), no_id);
      for (const std::size_t i : moved)
        if (!is_signed(inputs[i])) inputs[i] = flipped_constant(inputs[i]);
    }
    if (changes) edit_.replace(id, node.op, std::move(inputs));
  }

  ValueId flipped_constant(ValueId id) {
    if (id == no_id) {
      Tensor zero(DType::i8, Shape{});
      *static_cast<std::int8_t*>(zero.data()) = 0;
      return edit_.add_constant("zero_point:unsigned", flipped(zero));
    }
    return edit_.add_constant(edit_.graph().value(id).name + ":unsigned", flipped(edit_.graph().value(id).constant));
  }

  GraphEdit& edit_;
  std::vector<ValueId> group_;  ///< of values that have one type, by their first ones
  std::vector<bool> stays_;     ///< by group
};

}  // namespace

void make_unsigned(GraphEdit& edit) { Unsigned(edit).run(); }

}  // namespace lenslet
