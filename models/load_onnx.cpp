#include "models/load_onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "models/external_data.h"
#include "models/graph_names.h"
#include "models/inline_functions.h"
#include "models/limits.h"
#include "models/onnx_attribute.h"
#include "models/onnx_reader.h"
#include "models/onnx_tensor.h"
#include "models/opset.h"
#include "models/problems.h"
#include "models/subgraphs.h"
#include "ops/core/constant_value.h"
#include "ops/core/never.h"
#include "ops/core/onnx_types.h"
#include "ops/expand.h"
#include "runtime/graph/if_op.h"

namespace lenslet {

namespace {

/// Nodes of older ai.onnx opsets are read as of this one, except as listed in ops/old_opsets.cpp.
constexpr std::int64_t oldest_form = 7;

/// Builds the Graph of one file; lives for one call of load_onnx.
class GraphBuilder {
 public:
  GraphBuilder(const OnnxModel& model, TensorSource source, const std::string& name,
               std::span<const std::string> overridden)
      : GraphBuilder(*model.graph, Opsets(model.opset_imports), std::move(source), name, false, overridden) {}

  Graph build() {
    for (const std::string_view name : onnx_.sparse_initializers)
      problems_.add(ErrorKind::unsupported, fmt::format("initializer '{}'", name), "sparse tensors are not supported");
    add_inputs();
    for (const std::size_t n : names_.order(problems_)) add_node(n);
    add_outputs();
    problems_.throw_if_any();
    return std::move(graph_);
  }

 private:
  /// A branch's inputs are values of the enclosing graph, with types unknown here.
  GraphBuilder(const OnnxGraph& graph, Opsets opsets, TensorSource source, const std::string& name, bool branch,
               std::span<const std::string> overridden = {})
      : onnx_(graph),
        opsets_(std::move(opsets)),
        source_(std::move(source)),
        branch_(branch),
        names_(onnx_, problems_, overridden) {
    graph_.name = name;
  }

  void add_inputs();
  void add_outputs();
  void add_node(std::size_t index);
  std::shared_ptr<const Op> make_if(const OnnxNode& node) const;
  IfOp::Branch make_branch(const OnnxNode& node, std::string_view attribute) const;
  std::shared_ptr<const Op> make_op(const OnnxNode& node, AttributeList attributes, std::int64_t opset) const;
  bool add_expanded(std::size_t index, const AttributeList& attributes, std::int64_t opset);
  const Opsets& opsets_of(const OnnxNode& node);
  ValueId find_value(std::string_view name);

  const OnnxGraph& onnx_;
  Problems problems_;
  Opsets opsets_;
  std::map<const OnnxImports*, Opsets> function_opsets_;
  TensorSource source_;
  bool branch_;
  GraphNames names_;
  Graph graph_;
  std::unordered_map<std::string_view, ValueId> values_;       // of the names resolved so far
  std::unordered_map<std::string_view, std::string> refused_;  // inputs that cannot be read, and why
};

std::size_t without_trailing_empty(const std::vector<std::string_view>& names) {
  std::size_t count = names.size();
  while (count > 0 && names[count - 1].empty()) --count;
  return count;
}

void check_count(std::string_view what, std::size_t count, int least, int most) {
  if (count < static_cast<std::size_t>(least) || (most >= 0 && count > static_cast<std::size_t>(most))) {
    const std::string range = most < 0        ? fmt::format("at least {}", least)
                              : least == most ? fmt::format("{}", least)
                                              : fmt::format("{} to {}", least, most);
    throw Error(ErrorKind::invalid_model, fmt::format("has {} {}; the operator takes {}", count, what, range));
  }
}

// Placeholders that exporters write for unknown sizes: equal ones need not be equal sizes. Includes names without a
// letter: "?", "-1", "*".
bool says_unknown(std::string_view name) {
  constexpr std::string_view words[] = {"none", "null", "nan", "unk", "unknown", "undefined", "any", "dynamic"};
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return c < 0x80 ? std::tolower(c) : c; });
  const bool letters = std::ranges::any_of(lower, [](unsigned char c) { return c >= 0x80 || std::isalpha(c) != 0; });
  return !letters || std::ranges::find(words, lower) != std::end(words) || lower.starts_with("unk__") ||
         lower.starts_with("unknown_");
}

// Fills `port` from a declaration. If not empty, the result says why the type is unsupported.
std::string describe_port(const OnnxValueInfo& info, PortInfo& port) {
  port.name = info.name;
  if (info.kind != OnnxValueInfo::Kind::tensor && info.kind != OnnxValueInfo::Kind::none)
    return "is not a tensor; sequences, maps and optionals are not supported";
  if (info.type != 0) {
    const auto dtype = dtype_of_onnx(info.type);
    if (!dtype) return fmt::format("tensors of {} are not supported", onnx_type_name(info.type));
    port.dtype = *dtype;
  }
  for (const OnnxDimension& dim : info.dims) {
    const bool fixed = dim.value && *dim.value >= 0;
    port.dims.push_back(fixed ? *dim.value : -1);
    port.dim_names.emplace_back(fixed || says_unknown(dim.name) ? std::string_view() : dim.name);
  }
  return {};
}

// An unsupported input type is an error only if a node reads it. An input without a shape is still a port.
void GraphBuilder::add_inputs() {
  for (const OnnxValueInfo& info : onnx_.inputs) {
    const Origin* origin = names_.find(info.name);
    if (origin == nullptr || origin->kind != Origin::Kind::input) continue;  // has an initializer, or no name
    if (&onnx_.inputs[origin->index] != &info) continue;                     // doubled, a problem already
    PortInfo port;
    std::string refusal = describe_port(info, port);
    if (refusal.empty() && !branch_ && info.type == 0) refusal = "declares no element type";
    const bool listed = refusal.empty();
    if (listed && !branch_ && !info.has_shape) refusal = "declares no shape: its rank is unknown";
    if (!refusal.empty()) refused_[info.name] = std::move(refusal);
    if (!listed) continue;
    const ValueId id = graph_.add_value(port.name);
    graph_.value(id).dtype = port.dtype;
    graph_.inputs.push_back(id);
    graph_.input_ports.push_back(port);
    if (!refused_.contains(info.name)) values_[info.name] = id;
  }
}

// The value of that name; initializers are read on first use. no_id if it is a reported problem.
ValueId GraphBuilder::find_value(std::string_view name) {
  if (const auto found = values_.find(name); found != values_.end()) return found->second;
  ValueId id = no_id;
  const Origin* origin = names_.find(name);
  if (origin != nullptr && origin->kind == Origin::Kind::initializer) {
    try {
      id = graph_.add_constant(std::string(name), to_tensor(onnx_.initializers[origin->index], source_));
    } catch (const Error& error) {
      problems_.add(error.kind(), fmt::format("initializer '{}'", name), error.what());
    }
  } else if (origin != nullptr && origin->kind == Origin::Kind::node) {
    id = graph_.add_value(std::string(name));
  } else if (const auto refused = refused_.find(name); refused != refused_.end()) {
    problems_.add(ErrorKind::unsupported, fmt::format("input '{}'", name), refused->second);
  }
  values_[name] = id;
  return id;
}

std::shared_ptr<const Op> GraphBuilder::make_op(const OnnxNode& node, AttributeList attributes,
                                                std::int64_t opset) const {
  const std::string_view domain = canonical_domain(node.domain);
  const OpRow* row = find_op(node.op_type, domain);
  if (row == nullptr || row->min_opset == never) throw Error(ErrorKind::unsupported, "the operator is not supported");
  if (domain.empty()) opset = std::max(opset, oldest_form);
  if (opset < row->min_opset)
    throw Error(ErrorKind::unsupported, fmt::format("the operator is supported from opset {} on", row->min_opset));
  const std::size_t inputs = without_trailing_empty(node.inputs), outputs = without_trailing_empty(node.outputs);
  check_count("inputs", inputs, row->min_inputs, row->max_inputs);
  check_count("outputs", outputs, row->min_outputs, row->max_outputs);
  return row->parts.make(
      {.attributes = attributes, .opset = opset, .inputs = inputs, .outputs = outputs, .name = row->name});
}

// A branch that cannot run is an error only if it is taken.
IfOp::Branch GraphBuilder::make_branch(const OnnxNode& node, std::string_view attribute) const {
  const auto found = std::ranges::find(node.attributes, attribute, &OnnxAttribute::name);
  if (found == node.attributes.end() || found->subgraph == nullptr)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' holds no graph", attribute));
  if (found->subgraph->outputs.size() != node.outputs.size())
    throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' has {} outputs, the node {}", attribute,
                                                      found->subgraph->outputs.size(), node.outputs.size()));
  try {
    GraphBuilder inner(*found->subgraph, opsets_, source_, std::string(attribute), true);
    return {std::make_shared<const Graph>(inner.build())};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw error.within(attribute);
    return {nullptr, error};
  }
}

std::shared_ptr<const Op> GraphBuilder::make_if(const OnnxNode& node) const {
  if (node.inputs.front().empty()) throw Error(ErrorKind::invalid_model, "input 0 (cond) is left out");
  IfOp::Branch then_branch = make_branch(node, "then_branch");
  return std::make_shared<IfOp>(std::move(then_branch), make_branch(node, "else_branch"));
}

const Opsets& GraphBuilder::opsets_of(const OnnxNode& node) {
  if (node.opset_imports == nullptr) return opsets_;
  return function_opsets_.try_emplace(node.opset_imports, *node.opset_imports).first->second;
}

// Adds the nodes that this one expands to, if any.
bool GraphBuilder::add_expanded(std::size_t index, const AttributeList& attributes, std::int64_t opset) {
  const OnnxNode& node = onnx_.nodes[index];
  const ExpansionRow* row = find_expansion(node.op_type, canonical_domain(node.domain), opset);
  if (row == nullptr) return false;
  const std::size_t inputs = without_trailing_empty(node.inputs), outputs = without_trailing_empty(node.outputs);
  check_count("inputs", inputs, row->min_inputs, row->max_inputs);
  check_count("outputs", outputs, 1, row->max_outputs);
  std::vector<bool> given;
  for (std::size_t i = 0; i < inputs; ++i) given.push_back(!node.inputs[i].empty());
  Expansion made = expand(
      *row, {.attributes = attributes, .opset = opset, .inputs = inputs, .outputs = outputs, .name = row->name}, given);
  if (made.steps.empty()) return false;
  const std::string name = names_.node_name(index);
  std::vector<ValueId> values(static_cast<std::size_t>(made.values), no_id);
  for (std::size_t i = 0; i < inputs; ++i)
    if (given[i]) values[i] = find_value(node.inputs[i]);
  for (std::size_t i = 0; i < outputs; ++i)
    if (!node.outputs[i].empty()) values[inputs + i] = find_value(node.outputs[i]);
  for (Expansion::Constant& constant : made.constants)
    values[static_cast<std::size_t>(constant.value)] =
        graph_.add_constant(fmt::format("{}:{}", name, constant.value), std::move(constant.tensor));
  for (std::size_t i = inputs; i < values.size(); ++i)
    if (values[i] == no_id) values[i] = graph_.add_value(fmt::format("{}:{}", name, i));
  const auto id = [&](int value) { return value < 0 ? no_id : values[static_cast<std::size_t>(value)]; };
  for (Expansion::Step& step : made.steps) {
    Node one;
    one.name = made.steps.size() == 1 ? name : fmt::format("{}:{}_{}", name, step.op->type(), graph_.nodes.size());
    one.op = std::move(step.op);
    for (const int value : step.inputs) one.inputs.push_back(id(value));
    for (const int value : step.outputs) one.outputs.push_back(id(value));
    graph_.nodes.push_back(std::move(one));
  }
  return true;
}

void GraphBuilder::add_node(std::size_t index) {
  const OnnxNode& node = onnx_.nodes[index];
  const std::string_view domain = canonical_domain(node.domain);
  std::string where = fmt::format("node {} ({}, {})", names_.node_name(index), node.op_type, domain_name(domain));
  for (const std::string_view input : node.inputs)
    if (refused_.contains(input)) find_value(input);
  try {
    const std::int64_t opset = opsets_of(node).version(domain);
    where.back() = ' ';
    where += fmt::format("opset {})", opset);
    AttributeList attributes = is_if(node) ? AttributeList() : to_attributes(node, source_);
    // A hint for memory, until opset 6.
    if (domain.empty() && opset < 6)
      std::erase_if(attributes, [](const auto& attribute) { return attribute.first == "consumed_inputs"; });
    if (node.op_type == "Constant" && domain.empty()) {
      check_count("inputs", without_trailing_empty(node.inputs), 0, 0);
      check_count("outputs", without_trailing_empty(node.outputs), 1, 1);
      const std::string_view output = node.outputs.front();
      values_[output] = graph_.add_constant(std::string(output), constant_value(attributes));
      return;
    }
    if (add_expanded(index, attributes, opset)) return;
    Node made;
    made.name = names_.node_name(index);
    made.op = is_if(node) ? make_if(node) : make_op(node, std::move(attributes), opset);
    for (std::size_t i = 0; i < without_trailing_empty(node.inputs); ++i)
      made.inputs.push_back(node.inputs[i].empty() ? no_id : find_value(node.inputs[i]));
    for (std::size_t i = 0; i < without_trailing_empty(node.outputs); ++i)
      made.outputs.push_back(node.outputs[i].empty() ? no_id : find_value(node.outputs[i]));
    graph_.nodes.push_back(std::move(made));
  } catch (const Error& error) {
    problems_.add(error.kind(), std::move(where), error.what(), node.op_type);
  }
}

void GraphBuilder::add_outputs() {
  std::unordered_set<std::string_view> seen;
  if (onnx_.outputs.empty()) problems_.add(ErrorKind::invalid_model, {}, "the graph has no outputs");
  for (const OnnxValueInfo& info : onnx_.outputs) {
    const auto fail = [&](std::string reason) {
      problems_.add(ErrorKind::invalid_model, fmt::format("output '{}'", info.name), std::move(reason));
    };
    PortInfo port;
    if (std::string refusal = describe_port(info, port); !refusal.empty()) {
      problems_.add(ErrorKind::unsupported, fmt::format("output '{}'", info.name), std::move(refusal));
      continue;
    }
    if (!seen.insert(info.name).second) {
      fail("occurs twice");
      continue;
    }
    if (names_.find(info.name) == nullptr) fail("is produced by no node");
    const ValueId id = find_value(info.name);
    if (id == no_id) continue;  // its producer is a problem already
    graph_.outputs.push_back(id);
    graph_.output_ports.push_back(std::move(port));
  }
}

void check_header(const OnnxModel& model) {
  if (!model.graph)
    throw Error(ErrorKind::invalid_model,
                "not an ONNX model: there is no graph in it (a TensorFlow .pb has to be converted: python -m "
                "tf2onnx.convert)");
  if (model.ir_version < limits::min_ir_version || model.ir_version > limits::max_ir_version)
    throw Error(model.ir_version < 1 ? ErrorKind::invalid_model : ErrorKind::unsupported,
                fmt::format("IR version {}; supported are {} to {}", model.ir_version, limits::min_ir_version,
                            limits::max_ir_version));
}

// Files commonly mistaken for models.
void check_magic(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) throw Error(ErrorKind::invalid_model, "the file is empty");
  struct Kind {
    std::size_t at;
    std::string_view bytes;
    const char* words;
  };
  using namespace std::string_view_literals;
  static constexpr Kind kinds[] = {
      {0, "version https://git-lfs"sv, "this is a Git LFS pointer, not the model: fetch the file with 'git lfs pull'"},
      {0, "PK\x03\x04"sv,
       "this is a ZIP archive, as PyTorch's .pt and .pth or Keras' .keras are; export the network in Python: "
       "torch.onnx.export(model, example_input, 'model.onnx')"},
      {0, "\x80\x02"sv,
       "this is a Python pickle, as old .pth files are; export: torch.onnx.export(model, input, 'model.onnx')"},
      {0, "\x89HDF\r\n"sv,
       "this is an HDF5 file, as Keras' .h5 are; convert it: python -m tf2onnx.convert --keras FILE"},
      {4, "TFL3"sv, "this is a TensorFlow Lite model; convert it: python -m tf2onnx.convert --tflite FILE"},
      {0, "7767517"sv, "this is an ncnn parameter file; lenslet reads the ONNX file that it was made from"},
      {0, "<?xml"sv, "this is an XML file, as OpenVINO's are; lenslet reads the ONNX file that it was made from"},
      {0, "\x93NUMPY"sv, "this is a NumPy array, no model"},
      {8, "{\""sv, "this is a safetensors file: weights without a network; export: torch.onnx.export(...)"},
  };
  for (const Kind& kind : kinds)
    if (text.size() > kind.at && text.substr(kind.at).starts_with(kind.bytes))
      throw Error(ErrorKind::invalid_model, kind.words);
}

// Each names an input that has an initializer.
void check_overridden(const OnnxGraph& graph, std::span<const std::string> overridden) {
  for (const std::string& name : overridden) {
    const auto is_it = [&](const auto& one) { return one.name == name; };
    if (std::ranges::none_of(graph.inputs, is_it) || std::ranges::none_of(graph.initializers, is_it))
      throw Error(ErrorKind::invalid_argument, fmt::format("'{}' is no input that has an initializer", name));
  }
}

}  // namespace

Graph load_onnx(std::span<const std::byte> bytes, ModelFile* file, const LoadOptions& options,
                const std::string& name) {
  if (bytes.size() > limits::model_file_bytes)
    throw Error(ErrorKind::limit,
                fmt::format("the model has {} bytes; at most {} are allowed", bytes.size(), limits::model_file_bytes));
  check_magic(bytes);
  OnnxModel model = read_onnx_model(bytes);
  check_header(model);
  read_subgraphs(model.graph->nodes);
  for (OnnxFunction& function : model.functions) read_subgraphs(function.nodes);
  std::deque<std::string> names;
  inline_functions(model, names);
  ExternalData external(options.external_data_dir);
  check_overridden(*model.graph, options.overridden);
  return GraphBuilder(model, {.file = file, .external = &external}, name, options.overridden).build();
}

}  // namespace lenslet
