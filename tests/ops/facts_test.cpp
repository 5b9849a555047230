// Properties that operators declare, for each node of data/facts.txt: types, attributes, axes and so on, or the reason
// for a refusal. Then the same for the node with each single change: a number of an attribute or a constant input, a
// dimension, a type, an added or removed input or output, another opset. The file has the number of accepted and
// refused changes and a checksum of all declarations; the last number is a checksum of the kernels' candidates.
// op_meaning.cpp proves declarations by results; this test shows that none is lost and nothing more is accepted. A
// changed line is intended or an error; the check prints the new text.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/simd/targets.h"
#include "ops/core/kernel.h"
#include "oracle/oracle.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/node_text.h"

namespace lenslet::test {
namespace {

std::string text_of(const std::vector<std::int64_t>& list) { return fmt::format("[{}]", fmt::join(list, ",")); }

std::string text_of(const AxisMap& map) {
  std::string text = map.keeps_order ? "in order" : "";
  for (const AxisMap::Followed& input : map.inputs) {
    text += input.parameter ? " p" : " ";
    for (std::size_t axis = 0; axis < Shape::max_rank; ++axis) {
      if (input.stretched[axis]) text += fmt::format("{}* ", axis);
      if (input.axis[axis] != AxisMap::none) text += fmt::format("{}:{} ", axis, input.axis[axis]);
    }
    text += ";";
  }
  return text;
}

std::string text_of(const Op& op, const Epilogue& epilogue) {
  Epilogue changed = epilogue;
  changed.activation = {Activation::Kind::leaky_relu, 0.5F, 0};
  const auto activated = op.with_epilogue(changed);
  return fmt::format("epilogue {} {} {} {} {:.5g} {} with another {} ", epilogue.channel_axis, epilogue.weight_input,
                     epilogue.bias_input, epilogue.residual_input, epilogue.bias_factor, epilogue.open(),
                     activated == nullptr ? "none" : to_string(activated->attributes()));
}

/// Result of permuted() for three other orders of the axes of `rank`.
std::string permuted_text(const Op& op, const std::vector<InputInfo>& inputs, int rank) {
  std::vector<int> last, first, turned;
  for (int i = 0; i < rank; ++i) {
    last.push_back(i == 0 ? 0 : i == 1 ? rank - 1 : i - 1);
    first.push_back(i == 0 ? 0 : i == rank - 1 ? 1 : i + 1);
    turned.push_back(rank - 1 - i);
  }
  std::string text;
  for (const std::vector<int>& to : {last, first, turned}) {
    const auto permuted = op.permuted(to, inputs);
    if (!permuted) continue;
    text += permuted->same_result ? " (as it was" : " (";
    if (permuted->op != nullptr)
      text += fmt::format("{} {}", permuted->op->type(), to_string(permuted->op->attributes()));
    for (const PermutedOp::Input& input : permuted->inputs) {
      text += fmt::format(" {}{}", input.number, input.permuted ? "'" : "");
      if (input.instead.empty()) continue;
      text += fmt::format("{}", fmt::join(oracle::from_tensor(input.instead).values, ","));
    }
    text += ")";
  }
  return text;
}

/// The same inputs, all constant except `side`.
struct Known {
  std::vector<Tensor> values;
  std::vector<InputInfo> inputs;
  Known(const TextNode& node, std::size_t side) : inputs(node.inputs) {
    values.reserve(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      values.emplace_back();
      if (i == side || !inputs[i].present || inputs[i].constant != nullptr) continue;
      const Shape& shape = inputs[i].type.shape;
      oracle::Array array;
      array.shape = shape;
      array.dtype = inputs[i].type.dtype;
      for (std::int64_t e = 0; e < shape.elems(); ++e) array.values.push_back(0.25 * static_cast<double>(e % 7 + 1));
      values.back() = oracle::to_tensor(array);
      inputs[i].constant = &values.back();
    }
  }
};

std::string formulas_text(const Op& op, const TextNode& node, const Shape& y) {
  std::string text;
  for (std::size_t side = 0; side < node.inputs.size(); ++side) {
    const InputInfo& x = node.inputs[side];
    if (!x.present || x.type.dtype != DType::f32 || x.constant != nullptr) continue;
    const Known known(node, side);
    if (side == 0)
      if (const auto activation = op.as_activation(known.inputs)) text += " is " + to_string(*activation);
    if (const auto affine = op.as_channel_affine(known.inputs, side, y))
      text +=
          fmt::format(" {}: {:.5g} * x + {:.5g}", side, fmt::join(affine->factor, ","), fmt::join(affine->offset, ","));
  }
  return text;
}

std::string facts_of(const TextNode& node) {
  const OpRow* const row = find_op(node.op, node.domain);
  REQUIRE(row != nullptr);
  try {
    const std::shared_ptr<const Op> op = op_of(node);
    const std::vector<TensorType> types = infer_types(*op, node.inputs);
    std::string text;
    for (const TensorType& type : types) text += fmt::format("{}{} ", to_string(type.dtype), type.shape.str());
    if (const std::string list = to_string(op->attributes()); !list.empty()) text += list + " ";
    if (const double flops = op->flops(node.inputs, types); flops > 0) text += fmt::format("{:.7g} flops ", flops);
    if (const std::string words = op->describe(node.inputs); !words.empty()) text += fmt::format("\"{}\" ", words);
    if (const std::size_t count = op->elementwise_inputs(); count != 0)
      text += count == Op::any_number ? "elementwise " : fmt::format("elementwise:{} ", count);
    if (op->reads_only_types()) text += "of types ";
    if (op->alias_input() >= 0) text += fmt::format("aliases {} ", op->alias_input());
    if (node.outputs == 1 && !node.inputs.empty() && op->gives_input_back(node.inputs)) text += "gives back ";
    if (const Epilogue* const epilogue = op->epilogue()) text += text_of(*op, *epilogue);
    if (auto zeros = op->imagined_zeros(node.inputs)) {
      text += "zeros " + text_of(*zeros) + " ";
      for (std::size_t i = 0; i < zeros->size(); ++i) (*zeros)[i] += static_cast<std::int64_t>(i) + 1;
      text += fmt::format("others {} ", to_string(op->imagining_zeros(*zeros)->attributes()));
    }
    if (const auto zeros = op->added_zeros(node.inputs)) text += "adds zeros " + text_of(*zeros) + " ";
    if (const auto cropped = op->without_idle_taps(node.inputs))
      text += fmt::format("taps {}..{} {} ", text_of(cropped->begins), text_of(cropped->ends),
                          to_string(cropped->op->attributes()));
    if (const auto map = op->axis_map(node.inputs, types[0].shape)) text += "axes" + text_of(*map);
    if (node.outputs == 1 && !node.inputs.empty() && node.inputs[0].present) {
      const std::string permuted = permuted_text(*op, node.inputs, node.inputs[0].type.shape.rank());
      if (!permuted.empty()) text += " permuted" + permuted;
      text += formulas_text(*op, node, types[0].shape);
    }
    return text;
  } catch (const Error& error) {
    std::string why = error.message();
    if (const std::size_t at = why.find(" (supported: "); at != why.npos) why.erase(at);  // CUDA's, too
    return fmt::format("{}: {}", to_string(error.kind()), why);
  }
}

using Ask = std::function<void(const std::string& what, const TextNode& changed)>;

template <typename T, typename Change>
void change_list(std::size_t attribute, const std::vector<T>& list, const Change& change) {
  for (std::size_t i = 0; i < list.size(); ++i)
    for (const T value : {list[i] - 1, list[i] + 1, -list[i] - 1, list[i] + 1000}) {
      std::vector<T> other = list;
      other[i] = value;
      change(attribute, other);
    }
  std::vector<T> longer = list, shorter = list;
  longer.push_back(list.empty() ? T{1} : list.back());
  change(attribute, longer);
  if (list.empty()) return;
  shorter.pop_back();
  change(attribute, shorter);
}

void change_attributes(const TextNode& node, const Ask& ask) {
  const auto change = [&](std::size_t i, const auto& value) {
    TextNode other = node;
    other.know();
    other.attributes[i].second = value;
    ask(to_string(AttributeList{other.attributes[i]}), other);
  };
  for (std::size_t i = 0; i < node.attributes.size(); ++i) {
    const AttributeValue& value = node.attributes[i].second;
    if (const auto* integer = std::get_if<std::int64_t>(&value))
      for (const std::int64_t other : {*integer - 1, *integer + 1, -*integer - 1, *integer + 1000}) change(i, other);
    if (const auto* real = std::get_if<double>(&value))
      for (const double other : {0.0, *real + 0.5, -*real, 1e9}) change(i, other);
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) change_list(i, *list, change);
    if (const auto* list = std::get_if<std::vector<double>>(&value)) change_list(i, *list, change);
    if (!std::holds_alternative<std::string>(value)) change(i, std::string("odd"));
    if (const auto* text = std::get_if<std::string>(&value)) {
      change(i, *text + "_");
      change(i, std::int64_t{1});
    }
    TextNode without = node;
    without.know();
    without.attributes.erase(without.attributes.begin() + static_cast<std::ptrdiff_t>(i));
    ask("without " + node.attributes[i].first, without);
  }
}

void change_inputs(const TextNode& node, const Ask& ask) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].present) continue;
    const auto change = [&](const std::string& what, const auto& f) {
      TextNode other = node;
      f(other.inputs[i], other.constants[i]);
      other.know();
      ask(fmt::format("input {}: {}", i, what), other);
    };
    const TensorType& type = node.inputs[i].type;
    const auto of_type = [&](DType dtype, const Shape& shape) {
      change(fmt::format("{}{}", to_string(dtype), shape.str()), [&](InputInfo& input, Tensor& constant) {
        input.type = {dtype, shape};
        constant = Tensor();
      });
    };
    change("left out", [](InputInfo& input, Tensor& constant) {
      input = {};
      constant = Tensor();
    });
    for (const DType dtype : {DType::f32, DType::i64, DType::i32, DType::u8, DType::boolean, DType::f64})
      of_type(dtype, type.shape);
    std::vector<std::int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
    for (std::size_t d = 0; d < dims.size(); ++d)
      for (const std::int64_t size : {dims[d] - 1, dims[d] + 1, std::int64_t{1}, 2 * dims[d]}) {
        std::vector<std::int64_t> other = dims;
        other[d] = std::max<std::int64_t>(0, size);
        of_type(type.dtype, Shape(other));
      }
    for (const std::size_t at : {std::size_t{0}, dims.size()}) {
      std::vector<std::int64_t> other = dims;
      if (dims.size() < Shape::max_rank) {
        other.insert(other.begin() + static_cast<std::ptrdiff_t>(at), 1);
        of_type(type.dtype, Shape(other));
      }
      if (dims.empty()) continue;
      other = dims;
      other.erase(at == 0 ? other.begin() : other.end() - 1);
      of_type(type.dtype, Shape(other));
    }
    if (node.constants[i].empty()) continue;
    const oracle::Array known = oracle::from_tensor(node.constants[i]);
    for (std::size_t e = 0; e < known.values.size(); ++e)
      for (const double value :
           {known.values[e] - 1, known.values[e] + 1, -known.values[e] - 1, known.values[e] + 1000}) {
        if (type.dtype == DType::boolean && value != 0 && value != 1) continue;  // refused by loaders
        oracle::Array other = known;
        other.values[e] = value;
        change(fmt::format("{} at {}", value, e),
               [&](InputInfo&, Tensor& constant) { constant = oracle::to_tensor(other); });
      }
  }
}

void change_counts(const TextNode& node, const Ask& ask) {
  for (const std::int64_t opset : {1, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 19, 20, 21, 22, 23, 24, 25}) {
    TextNode other = node;
    other.opset = opset;
    other.know();
    ask(fmt::format("opset {}", opset), other);
  }
  const OpRow& row = *find_op(node.op, node.domain);
  const auto fits = [](std::size_t count, int least, int most) {
    return count >= static_cast<std::size_t>(least) && (most < 0 || count <= static_cast<std::size_t>(most));
  };
  TextNode other = node;
  other.know();
  if (fits(++other.outputs, row.min_outputs, row.max_outputs)) ask("an output more", other);
  other = node;
  if (fits(node.inputs.size() + 1, row.min_inputs, row.max_inputs)) {
    other.inputs.push_back(node.inputs.empty() ? InputInfo{} : node.inputs.back());
    other.constants.emplace_back();
    other.know();
    ask("an input more", other);
  }
  other = node;
  if (!node.inputs.empty() && fits(node.inputs.size() - 1, row.min_inputs, row.max_inputs)) {
    other.inputs.pop_back();
    other.constants.pop_back();
    other.know();
    ask("an input less", other);
  }
}

/// Results of all changes of a node.
struct Changes {
  int taken = 0, refused = 0;
  std::string said;
};
Changes changes_of(const TextNode& node) {
  Changes all;
  const Ask ask = [&](const std::string& what, const TextNode& changed) {
    const std::string facts = facts_of(changed);
    const bool refused = facts.find(": ") < 20 && (facts.starts_with("invalid") || facts.starts_with("unsupported") ||
                                                   facts.starts_with("limit"));
    ++(refused ? all.refused : all.taken);
    all.said += fmt::format("{} -> {}\n", what, facts);
  };
  change_attributes(node, ask);
  change_inputs(node, ask);
  change_counts(node, ask);
  return all;
}

/// The candidates for a node in full, and the packed weights.
std::string offers_of(const TextNode& node, const Target& target) {
  const std::shared_ptr<const Op> op = op_of(node);
  const Problem problem(op, node.inputs, infer_types(*op, node.inputs));
  const bool on_cpu = target.device.kind == DeviceKind::cpu;
  std::string text;
  for (const Kernel* const kernel : kernels_of(op->type(), target.device.kind)) {
    if (!on_cpu && kernel->name() != "cuda") continue;  // the others are covered by drawn_plans.txt
    const Offer offer = kernel->offer(problem, target);
    text += fmt::format("{}: {}\n", kernel->name(), offer.refusal.substr(0, offer.refusal.find(" (supported: ")));
    for (const Candidate& c : offer.candidates) {
      for (const Format& format : c.inputs) text += to_string(format) + " ";
      for (const Format& format : c.outputs) text += "-> " + to_string(format) + " ";
      if (on_cpu) text += fmt::format("{} bytes ", c.workspace_bytes);
      text += fmt::format("{} {:.6g} us {:.5g} {:x} {:x} {} {:x} {}\n", c.config, c.estimated_us, c.tolerance,
                          c.in_place, c.pitched_inputs, c.pitched_output, c.reads, c.needs_cublas);
      if (const auto blob = kernel->blob(problem, c))
        text += fmt::format("prepares {} bytes {} {}\n", blob->bytes, blob->alignment, blob->key);
      CHECK(key_decides_blob(*kernel, problem, c));
    }
  }
  return text;
}

/// The node with float16 in place of float32 if that is accepted; else without inputs.
TextNode in_halves(TextNode node) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].type.dtype == DType::f32) node.inputs[i].type.dtype = DType::f16;
    if (node.constants[i].empty() || node.constants[i].dtype() != DType::f32) continue;
    node.constants[i] = node.constants[i].to_dtype(DType::f16);
  }
  node.know();
  try {
    infer_types(*op_of(node), node.inputs);
  } catch (const Error&) {
    node.inputs.clear();
  }
  return node;
}

/// For the CPU with one and six threads, and for CUDA in three precisions.
std::string all_offers_of(const TextNode& node) {
  std::string text;
  for (const int threads : {1, 6}) {
    DeviceProfile device = cpu_profile(threads);
    device.l2_bytes = 1 << 20;
    text += offers_of(node, {.device = device});
  }
  DeviceProfile gpu = reference_gpu();
  gpu.cublas_reason.clear();
  for (const char* const precision : {"fp32", "tf32"})
    text += offers_of(node, {.device = gpu, .numerics = parse_numerics(precision)});
  if (const TextNode halves = in_halves(node); !halves.inputs.empty())
    text += offers_of(halves, {.device = gpu, .numerics = parse_numerics("fp16")});
  return text;
}

}  // namespace

TEST_CASE("facts/what_operators_say_of_themselves_and_what_kernels_offer") {
  std::set<std::string> seen;
  const auto check = [&](bool with_offers) {
    CHECK(check_said("facts.txt", with_offers, [&](const std::string& line, std::string& details) {
            const TextNode node = parse_node(line);
            seen.insert(node.op);
            const Changes changes = changes_of(node);
            details = changes.said;
            std::string said = fmt::format("  {}\n  changed {} times: {} refused, {:08x}\n", facts_of(node),
                                           changes.taken + changes.refused, changes.refused, sum_of(changes.said));
            if (!with_offers) return said;
            const std::string offers = all_offers_of(node);
            details += offers;
            return said + fmt::format("  offers {:08x}\n", sum_of(offers));
          }) == 359);
  };
  // The CPU is assumed to have AVX2 and 1 MiB of L2, as in estimates_test.cpp.
  bool asked = false;
  for_each_target(HWY_TARGETS & HWY_AVX2, [&] {
    check(true);
    asked = true;
  });
  if (!asked) check(false);
  for (const OpRow& row : op_table())
    if (row.name != "Constant")
      CHECK_MESSAGE(seen.contains(std::string(row.name)), "tests/ops/data/facts.txt has no node of ", row.name);
}

}  // namespace lenslet::test
