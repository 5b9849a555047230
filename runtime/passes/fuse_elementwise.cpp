// fuse_elementwise: elementwise nodes that follow each other become one ElementwiseChain, which reads its operands once
// and writes once. Each is the only reader of the one before, and all have one shape: a
// squeeze-and-excite's Mul with the residual Add and the Relu behind it, BatchNormalization before a sum. On CUDA a
// function with a number that 16 bits cannot hold is a chain of one.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/epilogue.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/rounded_constants.h"

namespace lenslet {
namespace {

// Of the operator ElementwiseChain.
constexpr std::size_t most_functions = 8, most_operands = 4;
constexpr std::string_view of_one[] = {"Tanh", "Abs", "Neg", "Exp", "Sqrt", "Reciprocal", "Erf", "Softplus"};
constexpr std::string_view of_two[] = {"Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"};

/// Functions of x as the attributes of an ElementwiseChain.
struct Links {
  ValueId x = no_id;
  std::vector<ValueId> operands;  ///< no_id: the next of `constants`
  std::vector<Tensor> constants;
  std::vector<std::string> functions;
  std::vector<std::int64_t> inputs, reversed;
  std::vector<double> a, b;

  void add(std::string_view function, std::int64_t taken = 0, bool is_reversed = false, double alpha = 0,
           double beta = 0) {
    functions.emplace_back(function);
    inputs.push_back(taken), reversed.push_back(is_reversed ? 1 : 0), a.push_back(alpha), b.push_back(beta);
  }
  void add(const Activation& f) {
    add(to_string(f.kind), 0, false, static_cast<double>(f.alpha), static_cast<double>(f.beta));
  }
  /// Those of `more` behind these.
  void append(Links more) {
    const auto move = [](auto& from, auto& to) { std::move(from.begin(), from.end(), std::back_inserter(to)); };
    move(more.operands, operands), move(more.constants, constants), move(more.functions, functions);
    move(more.inputs, inputs), move(more.reversed, reversed), move(more.a, a), move(more.b, b);
  }
};

class Fuser {
 public:
  Fuser(Graph& graph, const PassContext& context)
      : edit_(graph),
        on_cuda_(context.target.device.kind == DeviceKind::cuda),
        storage_(context.target.numerics.storage) {}

  void run() {
    const auto is_read = [&](NodeId id) { return !edit_.erased(id) && has_result(edit_.graph().node(id)); };
    for (const NodeId id : edit_.nodes())
      if (is_read(id)) read_unexpanded(id);
    for (const NodeId id : edit_.nodes())
      if (is_read(id)) merge(id);
    for (const NodeId id : edit_.nodes())
      if (on_cuda_ && is_read(id)) keep_number(id);
    edit_.finish();
  }

 private:
  const Value& value(ValueId id) const { return edit_.graph().value(id); }

  /// The Expand of an operand beside one of the result's shape (the gates of ECA and of Swin V2's scores) does nothing.
  void read_unexpanded(NodeId id) {
    const Node& node = edit_.graph().node(id);
    if (node.inputs.size() != 2 || std::ranges::find(of_two, node.type()) == std::end(of_two)) return;
    for (const std::size_t side : {0U, 1U}) {
      const ValueId expanded = node.inputs[side];
      const Node* const expand = edit_.made_by(expanded, "Expand");
      if (expand == nullptr || !(value(node.inputs[1 - side]).shape == value(node.outputs[0]).shape) ||
          edit_.made_by(node.inputs[1 - side], "Expand") != nullptr)
        continue;
      std::vector<ValueId> inputs = node.inputs;
      inputs[side] = expand->inputs[0];
      edit_.replace(id, node.op, std::move(inputs));
      return edit_.erase_unread(expanded);
    }
  }

  /// `id` and the node that makes one of its inputs become one.
  void merge(NodeId id) {
    std::optional<Links> best;
    NodeId producer = no_id;
    for (const std::size_t side : {0U, 1U}) {
      const ValueId v = input_of(edit_.graph().node(id), side);
      if (v == no_id || !edit_.merges(v)) continue;
      std::optional<Links> here = links(id, side), all = links(edit_.producer(v));
      if (!here || !all) continue;
      all->append(std::move(*here));
      if (all->functions.size() > most_functions || all->operands.size() > most_operands || !takes_constants(*all, v) ||
          (best && best->functions.size() >= all->functions.size()))
        continue;
      best = std::move(all);
      producer = edit_.producer(v);
    }
    if (best) replace(id, producer, std::move(*best));
  }

  /// A function with a number that the stored type cannot hold, as an epsilon in 16 bits: a chain of one, which
  /// computes in float32 without Casts around it.
  void keep_number(NodeId id) {
    const auto holds = [&](double number) {
      const auto value = static_cast<float>(number);
      if (!std::isfinite(value) || std::abs(value) == std::numeric_limits<float>::max()) return true;
      const Tensor rounded = Tensor::of<float>(Shape{}, {value}).to_dtype(storage_).to_dtype(DType::f32);
      return std::abs(rounded.values<float>()[0] - value) <= most_rounding * std::abs(value);
    };
    if (edit_.graph().node(id).type() == "ElementwiseChain") return;
    const std::optional<Links> found = links(id);
    if (!found || found->functions.size() != 1 || !found->operands.empty() ||
        (holds(found->a[0]) && holds(found->b[0])))
      return;
    edit_.replace(id, chain_of(*found, 1), {found->x});
  }

  static std::shared_ptr<const Op> chain_of(const Links& links, std::size_t inputs) {
    std::string functions;
    for (const std::string& f : links.functions) functions.append(functions.empty() ? "" : "+").append(f);
    return make_normalised_op("ElementwiseChain",
                              {{"functions", functions},
                               {"inputs", links.inputs},
                               {"reversed", links.reversed},
                               {"a", links.a},
                               {"b", links.b}},
                              inputs);
  }

  void replace(NodeId id, NodeId producer, Links links) {
    std::vector<ValueId> inputs{links.x};
    const std::string name = edit_.graph().node(producer).name;
    auto constant = links.constants.begin();
    for (const ValueId operand : links.operands)
      inputs.push_back(operand != no_id ? operand : edit_.add_constant(name + ":factor", std::move(*constant++)));
    edit_.erase(producer);
    const std::size_t count = inputs.size();
    edit_.replace(id, chain_of(links, count), std::move(inputs));
  }

  /// The node as functions of the input that is made last.
  std::optional<Links> links(NodeId id) const {
    const Node& node = edit_.graph().node(id);
    const ValueId second = input_of(node, 1);
    const bool later = second != no_id && edit_.producer(second) > edit_.producer(node.inputs[0]);
    std::optional<Links> found = links(id, later ? 1 : 0);
    return found ? found : links(id, later ? 0 : 1);
  }

  /// The node as functions of one of its inputs, which has the output's shape and type.
  std::optional<Links> links(NodeId id, std::size_t side) const {
    const Node& node = edit_.graph().node(id);
    if (input_of(node, side) == no_id || node.outputs.size() != 1) return std::nullopt;
    const Value &v = value(node.inputs[side]), &y = value(node.outputs[0]);
    if (v.is_constant() || v.dtype != DType::f32 || y.dtype != DType::f32 || !(v.shape == y.shape) ||
        v.file_type != y.file_type)
      return std::nullopt;
    Links made;
    made.x = node.inputs[side];
    const bool known = side == 0 && (add_chain(node, made) || add_batch_norm(node, made) || add_function(node, made));
    return known || add_function_of_two(node, side, made) ? std::optional(std::move(made)) : std::nullopt;
  }

  static bool add_chain(const Node& node, Links& to) {
    if (node.type() != "ElementwiseChain") return false;
    const std::string names = *attribute<std::string>(*node.op, "functions");
    for (std::size_t at = 0; at < names.size();) {
      const std::size_t end = std::min(names.find('+', at), names.size());
      to.functions.push_back(names.substr(at, end - at));
      at = end + 1;
    }
    to.operands.assign(node.inputs.begin() + 1, node.inputs.end());
    to.inputs = *integers_attribute(*node.op, "inputs");
    to.reversed = *integers_attribute(*node.op, "reversed");
    to.a = *attribute<std::vector<double>>(*node.op, "a");
    to.b = *attribute<std::vector<double>>(*node.op, "b");
    return true;
  }

  /// As a factor and an offset for each channel, as its kernels compute it, and its activation. Not on CUDA: a chain
  /// reads 8 bytes of factors for 2 of x. Mul, BatchNormalization and SiLU of 64x384x56x56 take 159 us in two steps,
  /// 253 in one (H200, fp16).
  bool add_batch_norm(const Node& node, Links& to) const {
    if (node.type() != "BatchNormalization" || on_cuda_) return false;
    const Activation activation = node.op->epilogue()->activation;
    Epilogue alone = *node.op->epilogue();
    alone.activation = {};
    const Shape& y = value(node.outputs[0]).shape;
    const auto affine =
        node.op->with_epilogue(std::move(alone))->as_channel_affine(edit_.graph().input_infos(node), 0, y);
    if (!affine) return false;
    Shape channels{y[1]};
    if (y.rank() > 2) {
      std::vector<std::int64_t> dims(static_cast<std::size_t>(y.rank()) - 1, 1);
      dims[0] = y[1];
      channels = Shape(dims);
    }
    for (const std::vector<double>* numbers : {&affine->factor, &affine->offset}) {
      const std::vector<float> rounded(numbers->begin(), numbers->end());
      to.operands.push_back(no_id);
      to.constants.push_back(Tensor::of<float>(channels, rounded));
    }
    to.add("ScaleShift", 2);
    if (activation.kind != Activation::Kind::none) to.add(activation);
    return true;
  }

  bool add_function(const Node& node, Links& to) const {
    if (node.op->elementwise_inputs() == 0) return false;
    const bool square = node.type() == "Pow" && scalar_constant(edit_.graph(), node.inputs[1]) == 2.0F;
    if (const auto activation = node.op->as_activation(edit_.graph().input_infos(node)))
      to.add(*activation);
    else if (square || std::ranges::find(of_one, node.type()) != std::end(of_one))
      to.add(square ? "Square" : node.type());
    else
      return false;
    return true;
  }

  bool add_function_of_two(const Node& node, std::size_t side, Links& to) const {
    const std::string_view type = node.type() == "Sum" ? "Add" : node.type();
    if (node.inputs.size() != 2 || std::ranges::find(of_two, type) == std::end(of_two)) return false;
    const ValueId other = node.inputs[1 - side];
    if (value(other).dtype != DType::f32) return false;
    // A sum and a product have one value either way.
    const bool reversed = side == 1 && type != "Add" && type != "Mul";
    const std::optional<float> number = scalar_constant(edit_.graph(), other);
    to.add(type, number ? 0 : 1, reversed, static_cast<double>(number.value_or(0)));
    if (!number) to.operands.push_back(other);
    return true;
  }

  /// Pixels of 16 bits on CUDA may have a padded pitch, which operators with constants by channels do not take.
  bool takes_constants(const Links& all, ValueId y) const {
    const Shape& shape = value(y).shape;
    if (!on_cuda_ || shape.rank() != 4 || shape[1] % 8 == 0) return true;
    return std::ranges::none_of(all.operands, [&](ValueId id) { return id == no_id || value(id).is_constant(); });
  }

  GraphEdit edit_;
  const bool on_cuda_;
  const DType storage_;
};

}  // namespace

void fuse_elementwise(Graph& graph, const PassContext& context) { Fuser(graph, context).run(); }

}  // namespace lenslet
