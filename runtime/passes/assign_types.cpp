// assign_types: for a 16-bit precision, requested or the file's own, decides which float32 values are stored in 16 bits
// and inserts Casts between the two. Products (nodes with an epilogue) use 16 bits wherever a kernel of the device
// supports it; other nodes use the type in which most of their elements arrive. Weights and biases stay float32 here:
// kernels round weights once, after folding, and add biases in float32.
//
// These stay float32: nodes without a 16-bit kernel (TopK); the last product of a network unless it makes images,
// since its scores are often close (it may read 16-bit operands where that loses nothing); nodes with a constant that
// 16 bits cannot hold; inputs and outputs of the network; and, if 16 bits were not requested, nodes that the file
// computes in float32. A Cast to 16 bits in the file rounds, unless its input is already stored so.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/core/onnx_types.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/epilogue.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/rounded_constants.h"

namespace lenslet {
namespace {

/// What a constant is to its node. `beside`: added to computed values or joined with them.
enum class Role { factor, beside, bias_of_scores };

/// Rounds to `half`; nullopt if a value would overflow, underflow to 0, or lose precision as a denormal. Beside
/// computed values an error of 2^-24, float16's least step, is allowed, but at most 2^-8 of the constant's largest
/// value, so that an epsilon keeps its value. A bias of scores, whose powers are taken, may always be wrong by 2^-24.
std::optional<Tensor> in_halves(const Tensor& constant, DType half, Role role) {
  Tensor rounded = constant.to_dtype(half);
  const Tensor back = rounded.to_dtype(DType::f32);
  const auto before = constant.values<float>(), after = back.values<float>();
  float allowed = role == Role::factor ? 0.0F : 0x1p-24F;
  if (role == Role::beside) {
    float largest = 0;
    for (const float value : before)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    allowed = std::min(allowed, most_rounding * largest);
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (std::isnan(before[i]) || std::isinf(before[i])) continue;
    const float distance = std::abs(after[i] - before[i]);
    if (distance > most_rounding * std::abs(before[i]) && distance > allowed) return std::nullopt;
  }
  return rounded;
}

Role role_of(const Node& node, std::size_t input) {
  if (node.type() == "Attention" && input == 3) return Role::bias_of_scores;
  const bool beside = node.type() == "Add" || node.type() == "Sub" || node.type() == "Sum" || node.type() == "Concat";
  return beside ? Role::beside : Role::factor;
}

class TypeAssigner {
 public:
  TypeAssigner(Graph& graph, const PassContext& context)
      : graph_(graph),
        target_(context.target),
        half_(target_.numerics.storage),
        types_of_file_(context.types_of_file),
        forms_(graph.values.size()) {}

  void run() {
    find_last_products();
    find_operands();
    std::vector<DType> declared;  // outputs that the model declares in 16 bits keep their type
    for (const ValueId id : graph_.outputs) declared.push_back(graph_.value(id).dtype);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      for (ValueId& id : nodes[n].inputs)
        if (const auto same = same_as_.find(id); same != same_as_.end()) id = same->second;
      if (!converts(nodes[n]))
        assign(nodes[n], last_[n]);
      else if (!meets_cast(nodes[n]))
        continue;
      graph_.nodes.push_back(std::move(nodes[n]));
    }
    for (std::size_t i = 0; i < declared.size(); ++i)
      if (declared[i] == DType::f32) graph_.outputs[i] = as_output(graph_.outputs[i]);
    drop_unread_casts();
  }

 private:
  /// The copies of one value in float32 and in 16 bits, if they exist.
  struct Forms {
    ValueId single = no_id, half = no_id;
    ValueId unrounded = no_id;  ///< in float32, from which a Cast made `half`
    bool exact = false;         ///< `single` is a Cast of `half`
  };

  static bool is_product(const Node& node) { return of_product(node.op->epilogue()); }
  /// A computed value whose type this pass may change.
  bool is_single(ValueId id) const {
    return id != no_id && graph_.value(id).dtype == DType::f32 && !graph_.value(id).is_constant();
  }
  bool is_half(ValueId id) const { return id != no_id && graph_.value(id).dtype == half_; }

  /// The last products: no product follows, and they make neither images nor sparse features that become images.
  void find_last_products() {
    std::vector<bool> multiplied(graph_.values.size());  // is it, or a value made from it, a product's operand?
    std::vector<bool> images(graph_.values.size());      // whether it is or becomes an image
    last_.resize(graph_.nodes.size());
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      const auto any_output = [&](const auto& holds) {
        return std::any_of(node.outputs.begin(), node.outputs.end(),
                           [&](ValueId id) { return id != no_id && holds(static_cast<std::size_t>(id)); });
      };
      const bool again = any_output([&](std::size_t id) { return multiplied[id]; });
      const bool image = any_output([&](std::size_t id) { return images[id] || graph_.values[id].shape.rank() >= 4; });
      last_[n] = is_product(node) && !again && !image && graph_.value(node.outputs[0]).shape.rank() == 2;
      for (const ValueId id : node.inputs) {
        if (id == no_id) continue;
        if (again || is_product(node)) multiplied[static_cast<std::size_t>(id)] = true;
        if (image) images[static_cast<std::size_t>(id)] = true;
      }
    }
  }

  /// The inputs of the network, also under other names; and the values that only products read, as operand 0, perhaps
  /// behind Transposes and other names.
  void find_operands() {
    inputs_.assign(graph_.values.size(), false);
    for (const ValueId id : graph_.inputs) inputs_[static_cast<std::size_t>(id)] = true;
    for (const Node& node : graph_.nodes)
      if (is_view(node) && has_result(node) && inputs_[static_cast<std::size_t>(node.inputs[0])])
        inputs_[static_cast<std::size_t>(node.outputs[0])] = true;
    operands_.assign(graph_.values.size(), true);
    for (const ValueId id : graph_.outputs) operands_[static_cast<std::size_t>(id)] = false;
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == no_id) continue;
        const bool moved = i == 0 && (is_view(node) || node.type() == "Transpose");
        const bool read = i == 0 && is_product(node) && !last_[n];
        if (!read && !(moved && has_result(node) && operands_[static_cast<std::size_t>(node.outputs[0])]))
          operands_[static_cast<std::size_t>(node.inputs[i])] = false;
      }
    }
  }

  Forms& forms(ValueId id) {
    forms_.resize(graph_.values.size());
    Forms& found = forms_[static_cast<std::size_t>(id)];
    if (is_half(id)) found.half = id;
    if (is_single(id)) found.single = id;
    return found;
  }

  /// The value in `dtype`, cast before the node that comes next.
  ValueId in_type(ValueId id, DType dtype) {
    const Forms known = forms(id);
    if (const ValueId found = dtype == half_ ? known.half : known.single; found != no_id) return found;
    Value cast = graph_.value(id);
    cast.dtype = dtype;
    cast.name = fmt::format("{}:{}", cast.name, to_string(dtype));
    Node node;
    node.name = cast.name;
    node.op = make_normalised_op("Cast", {{"to", dtype_to_onnx(dtype)}}, 1);
    node.inputs = {id};
    const ValueId made = graph_.add_value(cast.name);
    graph_.value(made) = std::move(cast);
    node.outputs = {made};
    graph_.nodes.push_back(std::move(node));
    Forms both = forms(id);
    (dtype == half_ ? both.half : both.single) = made;
    forms_[static_cast<std::size_t>(id)] = forms_[static_cast<std::size_t>(made)] = both;
    return made;
  }

  /// A Cast that is there already, of float32 and 16 bit.
  bool converts(const Node& node) const {
    if (node.type() != "Cast" || node.outputs[0] == no_id) return false;
    const ValueId from = node.inputs[0], to = node.outputs[0];
    return (is_single(from) || is_half(from)) && (is_half(to) || (is_single(to) && is_half(from)));
  }

  /// Records its result in both types; false if it need not run.
  bool meets_cast(const Node& node) {
    const ValueId from = node.inputs[0], to = node.outputs[0];
    const Forms known = forms(from);
    if (is_single(to)) {  // holds the rounded values, unlike the original
      Forms& made = forms(to);
      made.half = from;
      made.unrounded = known.unrounded;
      made.exact = true;
    } else if (known.half == no_id) {
      forms(to).unrounded = from;
      forms(from).half = to;
    } else if (!graph_.is_output(to)) {
      same_as_.emplace(to, known.half);
      return false;
    }
    return true;
  }

  void drop_unread_casts() {
    std::vector<bool> read(graph_.values.size(), false);
    for (const ValueId id : graph_.outputs) read[static_cast<std::size_t>(id)] = true;
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      Node& node = graph_.nodes[n];
      if (node.type() == "Cast" && node.outputs[0] != no_id && !read[static_cast<std::size_t>(node.outputs[0])]) {
        node.op = nullptr;
        continue;
      }
      for (const ValueId id : node.inputs)
        if (id != no_id) read[static_cast<std::size_t>(id)] = true;
    }
    remove_erased(graph_);
  }

  void assign(Node& node, bool last) {
    if (const int alias = node.op->alias_input(); alias >= 0) {
      // The same bytes under another name.
      const ValueId from = node.inputs[static_cast<std::size_t>(alias)];
      if (is_half(from) && is_single(node.outputs[0])) graph_.value(node.outputs[0]).dtype = half_;
    } else if (!last && may_halve(node) && wants_halves(node) && assign_halves(node)) {
      return;
    }
    if (node.op->alias_input() >= 0) return;
    const bool as_it_is = last && multiplies_as_exactly(node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (is_half(node.inputs[i]) && !(as_it_is && i == 0)) node.inputs[i] = in_type(node.inputs[i], DType::f32);
  }

  /// Whether a kernel's float32 product of a 16-bit input 0 is as exact as with an input cast to float32.
  bool multiplies_as_exactly(const Node& node) {
    if (!is_half(node.inputs[0]) || forms(node.inputs[0]).single != no_id) return false;
    std::vector<InputInfo> inputs = graph_.input_infos(node);
    for (InputInfo& input : inputs)
      if (input.type.dtype == half_) input.type.dtype = DType::f32;
    const std::optional<double> cast = least_tolerance(node, inputs);
    inputs[0].type.dtype = half_;
    const std::optional<double> as_it_is = least_tolerance(node, inputs);
    return cast && as_it_is && *as_it_is <= *cast;
  }

  std::optional<double> least_tolerance(const Node& node, const std::vector<InputInfo>& inputs) const {
    const Problem problem(node.op, inputs, graph_.output_types(node));
    std::optional<double> least;
    for (const Kernel* kernel : kernels_of(node.type(), target_.device.kind))
      for (const Candidate& candidate : kernel->offer(problem, target_).candidates)
        least = std::min(least.value_or(candidate.tolerance), candidate.tolerance);
    return least;
  }

  /// Whether 16 bits were requested, or the file computes the node in 16 bits. A node without float outputs counts if
  /// all its float inputs are 16-bit.
  bool may_halve(const Node& node) const {
    if (!types_of_file_) return true;
    bool any = false;
    const auto is_other = [&](ValueId id) {
      if (id == no_id || graph_.value(id).dtype != DType::f32) return false;
      any = true;
      return graph_.value(id).file_type != half_;
    };
    if (std::any_of(node.outputs.begin(), node.outputs.end(), is_other)) return false;
    return any || std::none_of(node.inputs.begin(), node.inputs.end(), is_other);
  }

  bool wants_halves(const Node& node) {
    if (is_product(node)) return is_single(node.inputs[0]) || is_half(node.inputs[0]);
    // An input is rounded before it is moved. Transposes of images become changes of format, and kernels may round an
    // image themselves.
    const auto at = static_cast<std::size_t>(node.inputs.empty() ? no_id : node.inputs[0]);
    if (node.type() == "Transpose" && at < inputs_.size() && inputs_[at] && has_result(node) &&
        graph_.value(node.inputs[0]).shape.rank() > 4 && operands_[static_cast<std::size_t>(node.outputs[0])])
      return true;
    std::int64_t halves = 0, singles = 0;
    for (const ValueId id : node.inputs) {
      if (!is_half(id) && !is_single(id)) continue;
      (is_half(id) || forms(id).exact ? halves : singles) += graph_.value(id).shape.elems();
    }
    return halves > singles;
  }

  /// Whether a kernel of the device supports the node on these types.
  bool takes(const Node& node, const std::vector<InputInfo>& inputs, const std::vector<TensorType>& outputs) const {
    const Problem problem(node.op, inputs, outputs);
    const auto kernels = kernels_of(node.type(), target_.device.kind);
    return std::any_of(kernels.begin(), kernels.end(), [&](const Kernel* kernel) {
      return kernel->types().contains(half_) && kernel->offer(problem, target_).refusal.empty();
    });
  }

  /// A node's 16-bit version.
  struct Halved {
    ValueId product_of = no_id;                    ///< replacement of input 0
    std::vector<DType> inputs;                     ///< required types
    std::vector<std::optional<Tensor>> constants;  ///< rounded constants, where needed
    std::vector<TensorType> outputs = {};
  };

  /// Products keep weights and bias in float32. Others keep constants where they can, as BatchNormalization's
  /// parameters and Resize's scales; `with_constants`: not these.
  std::optional<Halved> halved(const Node& node, bool with_constants) {
    const Epilogue* const product = is_product(node) ? node.op->epilogue() : nullptr;
    std::vector<InputInfo> inputs = graph_.input_infos(node);
    Halved halved{.inputs = std::vector<DType>(inputs.size()),
                  .constants = std::vector<std::optional<Tensor>>(inputs.size())};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      DType& dtype = inputs[i].type.dtype;
      if (inputs[i].present && (dtype == DType::f32 || dtype == half_)) {
        const bool operand = product == nullptr || i == 0 || static_cast<int>(i) == product->residual_input;
        if (!operand) {
          dtype = DType::f32;
        } else if (inputs[i].constant == nullptr) {
          dtype = half_;
        } else if ((with_constants || product != nullptr) && dtype == DType::f32) {
          halved.constants[i] = in_halves(*inputs[i].constant, half_, role_of(node, i));
          if (!halved.constants[i]) return std::nullopt;
          inputs[i].constant = &*halved.constants[i];
          dtype = half_;
        }
      }
      halved.inputs[i] = dtype;
    }
    if (product != nullptr) {
      halved.outputs = graph_.output_types(node);
      for (TensorType& output : halved.outputs)
        if (output.dtype == DType::f32) output.dtype = half_;
      // Preferably without a Cast, if the kernel rounds its inputs itself.
      const ValueId x = node.inputs[0];
      const Forms known = x == no_id ? Forms() : forms(x);
      const auto takes_single = [&](ValueId single) {
        if (single == no_id) return false;
        inputs[0].type.dtype = halved.inputs[0] = DType::f32;
        halved.product_of = single;
        if (takes(node, inputs, halved.outputs)) return true;
        inputs[0].type.dtype = halved.inputs[0] = half_;
        halved.product_of = no_id;
        return false;
      };
      if (takes_single(known.half == no_id ? known.single : known.unrounded)) return halved;
      if (takes(node, inputs, halved.outputs) || takes_single(known.single)) return halved;
      return std::nullopt;
    } else {
      try {
        halved.outputs = infer_types(*node.op, inputs);
      } catch (const Error&) {
        return std::nullopt;  // it requires equal types, or float32 for some input
      }
    }
    return takes(node, inputs, halved.outputs) ? std::optional(std::move(halved)) : std::nullopt;
  }

  /// Converts the node to 16 bits if possible.
  bool assign_halves(Node& node) {
    std::optional<Halved> made = halved(node, false);
    if (!made && !is_product(node)) made = halved(node, true);
    if (!made) return false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& id = node.inputs[i];
      if (i == 0 && made->product_of != no_id)
        id = made->product_of;
      else if (made->constants[i])
        id = graph_.add_constant(fmt::format("{}:{}", graph_.value(id).name, to_string(half_)), *made->constants[i]);
      else if (is_single(id) || is_half(id))
        id = in_type(id, made->inputs[i]);
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != no_id) graph_.value(node.outputs[i]).dtype = made->outputs[i].dtype;
    return true;
  }

  /// The value in float32, with the graph output's name.
  ValueId as_output(ValueId id) {
    if (!is_half(id)) return id;
    const ValueId out = in_type(id, DType::f32);
    if (!graph_.is_output(out)) std::swap(graph_.value(id).name, graph_.value(out).name);
    return out;
  }

  Graph& graph_;
  const Target& target_;
  const DType half_;
  const bool types_of_file_;
  std::unordered_map<ValueId, ValueId> same_as_;  // of Casts that are not needed
  std::vector<bool> inputs_, operands_;           // by value
  std::vector<bool> last_;                        // by node
  std::vector<Forms> forms_;                      // by value
};

}  // namespace

void assign_types(Graph& graph, const PassContext& context) {
  const DType storage = context.target.numerics.storage;
  if (storage == DType::f16 || storage == DType::bf16) TypeAssigner(graph, context).run();
}

}  // namespace lenslet
