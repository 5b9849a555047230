// Step of lower_quantized: what is a function of one code becomes a table. Each value's origin is the last 8-bit value
// that decides it element by element; chains of nodes, QuantizeLinear and DequantizeLinear included, are evaluated on
// the 256 codes of their origin.

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/evaluate.h"
#include "runtime/passes/quantized/linear.h"

namespace lenslet {
namespace {

class Tables {
 public:
  explicit Tables(GraphEdit& edit)
      : edit_(edit), origin_(edit.graph().values.size(), no_id), on_codes_(origin_.size()), same_(origin_.size()) {
    std::iota(same_.begin(), same_.end(), ValueId{0});
  }

  void run() {
    for (const ValueId id : edit_.graph().inputs) begin(id);
    for (const NodeId n : edit_.nodes()) {
      if (edit_.erased(n)) continue;
      read_same(n);
      follow(edit_.graph().node(n));
      const auto to = quantizer(edit_, n);
      if (!to) continue;
      const ValueId y = edit_.graph().node(n).outputs[0];
      if (origin_[at(y)] != y) make_table(n, origin_[at(y)], to->to.type);
    }
    for (const NodeId n : edit_.nodes())
      if (!edit_.erased(n)) read_same(n);
    for (std::size_t v = 0; v < same_.size(); ++v)
      if (same_[v] != static_cast<ValueId>(v)) edit_.erase_unread(static_cast<ValueId>(v));
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  const Value& value(ValueId id) const { return edit_.graph().value(id); }
  bool is_codes(ValueId id) const { return value(id).dtype == DType::u8 || value(id).dtype == DType::i8; }

  void begin(ValueId id) {
    if (is_codes(id)) origin_[at(id)] = id;
  }

  /// Values that equal codes read before.
  void read_same(NodeId n) {
    std::vector<ValueId> inputs = edit_.graph().node(n).inputs;
    bool changes = false;
    for (ValueId& id : inputs)
      if (id != no_id && same_[at(id)] != id) {
        id = same_[at(id)];
        changes = true;
      }
    if (changes) edit_.replace(n, edit_.graph().node(n).op, std::move(inputs));
  }

  void follow(const Node& node) {
    for (const ValueId id : node.outputs)
      if (id != no_id) begin(id);
    const ValueId from = source(node);
    if (from == no_id) return;
    std::vector<Tensor> inputs;
    for (const ValueId id : node.inputs)
      inputs.push_back(id == no_id ? Tensor() : value(id).is_constant() ? only_element(value(id).constant) : codes(id));
    try {
      on_codes_[at(node.outputs[0])] = infer_and_evaluate(node.op, inputs, pool_)[0];
      origin_[at(node.outputs[0])] = from;
    } catch (const Error&) {  // no kernel takes it in this form: it stays as it is
    }
  }

  /// The origin of all that decides the node's result element by element; no_id if there is none.
  ValueId source(const Node& node) const {
    const bool linear = linear_of(edit_.graph(), node).has_value();
    if ((!linear && node.op->elementwise_inputs() == 0) || node.outputs.size() != 1 || node.outputs[0] == no_id)
      return no_id;
    ValueId from = no_id;
    for (const ValueId id : node.inputs) {
      if (id == no_id) continue;
      if (value(id).is_constant()) {
        if (only_element(value(id).constant).empty()) return no_id;
        continue;
      }
      if (origin_[at(id)] == no_id || (from != no_id && from != origin_[at(id)])) return no_id;
      from = origin_[at(id)];
    }
    return from != no_id && value(from).shape == value(node.outputs[0]).shape ? from : no_id;
  }

  /// The value where its origin has all 256 codes, in the order of their bits.
  Tensor codes(ValueId id) {
    Tensor& known = on_codes_[at(id)];
    if (!known.empty()) return known;
    std::vector<std::int64_t> dims(static_cast<std::size_t>(std::max(1, value(id).shape.rank())), 1);
    dims.back() = 256;
    known = Tensor(value(id).dtype, Shape(dims));
    std::iota(static_cast<std::uint8_t*>(known.data()), static_cast<std::uint8_t*>(known.data()) + 256,
              std::uint8_t{0});
    return known;
  }

  void make_table(NodeId n, ValueId from, DType type) {
    const Node node = edit_.graph().node(n);
    const Tensor table = codes(node.outputs[0]);
    const bool same = type == value(from).dtype && std::memcmp(table.data(), codes(from).data(), table.bytes()) == 0;
    if (same && !edit_.is_output(node.outputs[0])) {
      same_[at(node.outputs[0])] = from;
      return;
    }
    std::vector<std::int64_t> numbers;
    for (std::size_t i = 0; i < 256; ++i) {
      const auto code = static_cast<const std::uint8_t*>(table.data())[i];
      numbers.push_back(type == DType::i8 ? std::int64_t{static_cast<std::int8_t>(code)} : std::int64_t{code});
    }
    auto op =
        same ? make_normalised_op("Identity", {}, 1)
             : make_normalised_op("QuantizedTable",
                                  {{"table", std::move(numbers)}, {"stored_type", std::string(to_string(type))}}, 1);
    const Node* const function = edit_.producer_node(node.inputs[0]);
    if (function != nullptr && function->type() != "DequantizeLinear" && edit_.merges(node.inputs[0]))
      edit_.graph().node(n).name = function->name;
    edit_.replace(n, std::move(op), {from});
    edit_.erase_unread(node.inputs[0]);
  }

  GraphEdit& edit_;
  std::vector<ValueId> origin_;   ///< by value
  std::vector<Tensor> on_codes_;  ///< by value, where its origin has the codes 0 to 255
  std::vector<ValueId> same_;     ///< by value: one with the same codes
  ThreadPool pool_{1};
};

}  // namespace

void make_tables(GraphEdit& edit) { Tables(edit).run(); }

}  // namespace lenslet
