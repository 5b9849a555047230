#include "graph_builder.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "runtime/graph/evaluate.h"
#include "runtime/graph/infer_shapes.h"
#include "runtime/passes/checked_passes.h"
#include "tests/larger_error.h"

namespace lenslet::test {

ValueId GraphBuilder::input(std::string name, std::vector<std::int64_t> dims, DType dtype) {
  const ValueId id = graph_.add_value(name);
  PortInfo port{.name = std::move(name), .dtype = dtype, .dims = {}, .dim_names = {}};
  for (const std::int64_t dim : dims) {
    port.dims.push_back(std::max<std::int64_t>(dim, -1));
    port.dim_names.emplace_back(dim == -1 ? "N" : dim == -2 ? "H" : dim == -3 ? "W" : "");
  }
  graph_.inputs.push_back(id);
  graph_.input_ports.push_back(std::move(port));
  return id;
}

ValueId GraphBuilder::constant(Tensor tensor) {
  return graph_.add_constant(fmt::format("c{}", count_++), std::move(tensor));
}

ValueId GraphBuilder::weights(Shape shape, double mean, double deviation) {
  return constant(random_f32(shape, seed_++, mean, deviation));
}

ValueId GraphBuilder::int64s(std::initializer_list<std::int64_t> values) {
  return constant(Tensor::of<std::int64_t>(Shape{static_cast<std::int64_t>(values.size())}, values));
}

ValueId GraphBuilder::node(std::string_view op, std::vector<ValueId> inputs, AttributeList attributes,
                           std::int64_t opset, std::size_t outputs, std::string_view domain) {
  const OpRow* row = find_op(op, domain);
  REQUIRE_MESSAGE(row != nullptr, std::string(op));
  return node_of(make_op(op, domain, attributes, inputs.size(), outputs, opset), inputs, outputs);
}

ValueId GraphBuilder::node_of(std::shared_ptr<const Op> op, std::vector<ValueId> inputs, std::size_t outputs) {
  Node node;
  node.name = fmt::format("{}_{}", op->type(), count_++);
  node.op = std::move(op);
  node.inputs = std::move(inputs);
  for (std::size_t i = 0; i < outputs; ++i)
    node.outputs.push_back(graph_.add_value(i == 0 ? node.name + ":0" : fmt::format("{}:{}", node.name, i)));
  graph_.nodes.push_back(node);
  return node.outputs[0];
}

ValueId GraphBuilder::conv(ValueId x, std::int64_t c, std::int64_t k, std::int64_t kernel, std::int64_t pad,
                           std::int64_t stride) {
  // Scaled so that values keep their magnitude through layers, as in trained networks.
  const double deviation = 1 / std::sqrt(static_cast<double>(c * kernel * kernel));
  const ValueId w = weights({k, c, kernel, kernel}, 0, deviation), b = weights({k});
  return node("Conv", {x, w, b},
              {{"pads", std::vector<std::int64_t>(4, pad)}, {"strides", std::vector<std::int64_t>(2, stride)}});
}

ValueId GraphBuilder::batch_norm(ValueId x, std::int64_t c) {
  const ValueId scale = weights({c}, 1, 0.3), b = weights({c}), mean = weights({c}), var = weights({c}, 4, 0.5);
  return node("BatchNormalization", {x, scale, b, mean, var}, {{"epsilon", 1e-3}});
}

void GraphBuilder::output(ValueId id) {
  graph_.outputs.push_back(id);
  graph_.output_ports.push_back({.name = graph_.value(id).name, .dtype = DType::f32, .dims = {}, .dim_names = {}});
}

Graph GraphBuilder::raw() const {
  Graph graph = graph_;
  graph.name = "test";
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) graph.value(graph.inputs[i]).dtype = graph.input_ports[i].dtype;
  return graph;
}

Graph GraphBuilder::build(std::int64_t batch) {
  graph_.name = "test";
  Graph graph = graph_;
  graph.check();
  bind_inputs(graph, batch, {});
  infer_shapes(graph);
  graph.check();
  return graph;
}

namespace {

Tensor poisoned(DType dtype, const Shape& shape, const Format& format = formats::nchw) {
  Tensor tensor(dtype, shape, format);
  std::fill_n(static_cast<unsigned char*>(tensor.data()), tensor.bytes(), 0xFF);
  return tensor;
}

Tensor poisoned_bytes(std::size_t bytes) { return poisoned(DType::u8, Shape{static_cast<std::int64_t>(bytes)}); }

/// Memory for a value; a part lies among the channels of its whole, which an earlier part may have allocated.
Tensor memory_for(const Graph& graph, ValueId id, const TensorType& type, const Format& format,
                  std::vector<Tensor>& values) {
  if (id == no_id) return poisoned(type.dtype, type.shape, format);
  const Value::Part& part = graph.value(id).part;
  if (part.whole == no_id) {
    Tensor& value = values[static_cast<std::size_t>(id)];
    return value.empty() ? poisoned(type.dtype, type.shape, format) : value;
  }
  Tensor& whole = values[static_cast<std::size_t>(part.whole)];
  const Value& of_whole = graph.value(part.whole);
  if (whole.empty()) whole = poisoned(of_whole.dtype, of_whole.shape, of_whole.format);
  return Tensor::view(type.dtype, type.shape, static_cast<float*>(whole.data()) + part.channel, format);
}

std::vector<Tensor> run_node(const Graph& graph, const Node& node, const std::vector<Tensor>& ins,
                             const std::vector<TensorType>& types, std::vector<Tensor>& values, ThreadPool& pool) {
  if (node.op->alias_input() >= 0) {  // the same bytes under another name
    const Tensor& from = ins[static_cast<std::size_t>(node.op->alias_input())];
    const Format format = graph.value(node.outputs[0]).format;
    return {Tensor::share(types[0].dtype, types[0].shape, std::make_shared<Tensor>(from), from.data(), format)};
  }
  if (node.choice == nullptr) return evaluate(node.op, ins, types, pool);
  const Candidate& candidate = node.choice->candidate;
  const DeviceProfile device = cpu_profile(pool.threads());
  const Problem problem(node.op, graph.input_infos(node), types);
  std::vector<Tensor> outs;
  for (std::size_t i = 0; i < types.size(); ++i)
    outs.push_back(memory_for(graph, node.outputs[i], types[i], candidate.outputs[i], values));
  Tensor blob, workspace = poisoned_bytes(candidate.workspace_bytes);
  if (const auto spec = node.choice->kernel->blob(problem, candidate)) {
    blob = poisoned_bytes(spec->bytes);
    node.choice->kernel->prepare(problem, candidate, bytes_of(blob));
  }
  node.choice->kernel->bind({problem, candidate, device})
      ->run({.inputs = ins,
             .outputs = outs,
             .workspace = bytes_of(workspace),
             .blob = static_cast<const std::byte*>(blob.data()),
             .pool = &pool});
  return outs;
}

}  // namespace

std::vector<Tensor> interpret(const Graph& graph, const std::vector<Tensor>& inputs) {
  graph.check();
  ThreadPool pool(1);
  std::vector<Tensor> values(graph.values.size());
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    values[static_cast<std::size_t>(graph.inputs[i])] = inputs.at(i);
  for (std::size_t id = 0; id < values.size(); ++id)
    if (graph.values[id].is_constant()) values[id] = graph.values[id].constant;

  for (const Node& node : graph.nodes) {
    INFO(node.label());
    std::vector<Tensor> ins;
    for (const ValueId id : node.inputs) {
      ins.push_back(id == no_id ? Tensor() : values[static_cast<std::size_t>(id)]);
      if (id != no_id) REQUIRE(ins.back().format() == graph.value(id).format);
    }
    const std::vector<TensorType> types = node.op->infer(graph.input_infos(node));
    const std::vector<Tensor> outs = run_node(graph, node, ins, types, values, pool);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == no_id) continue;
      const Value& value = graph.value(node.outputs[i]);
      REQUIRE(value.typed);
      REQUIRE(types[i] == TensorType{value.dtype, value.shape});
      REQUIRE(outs[i].format() == value.format);
      values[static_cast<std::size_t>(node.outputs[i])] = outs[i];
    }
  }
  std::vector<Tensor> results;
  for (const ValueId id : graph.outputs) results.push_back(values[static_cast<std::size_t>(id)]);
  return results;
}

std::vector<Tensor> random_inputs(const Graph& graph, unsigned seed) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs) inputs.push_back(random_f32(graph.value(id).shape, seed++));
  return inputs;
}

double relative_error(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  REQUIRE(a.dtype() == DType::f32);
  REQUIRE(a.format() == formats::nchw);
  REQUIRE(b.format() == formats::nchw);
  double worst = 0, squares = 0;
  const auto as = a.values<float>(), bs = b.values<float>();
  for (std::size_t i = 0; i < as.size(); ++i) {
    const double difference = std::abs(double{as[i]} - double{bs[i]});
    worst = larger_error(worst, difference);
    squares += double{as[i]} * double{as[i]};
  }
  if (worst == 0 || std::isinf(worst)) return worst;  // with a NaN the rms is NaN, too
  return worst / std::sqrt(squares / static_cast<double>(as.size()));
}

PassContext pass_context() {
  static const DeviceProfile one_thread = cpu_profile(1);
  return {.target = {one_thread}};
}

Graph after(const Graph& graph, std::string_view pass) { return after(graph, pass, pass_context()); }

Graph after(const Graph& graph, std::string_view pass, const PassContext& context) {
  Graph changed = graph;
  for (const Pass& candidate : passes()) {
    if (candidate.name != pass) continue;
    if (pass == passes()[0].name)  // before types are inferred
      candidate.run(changed, context);
    else
      CheckedPasses(changed, context).run(candidate);
    changed.check();
    return changed;
  }
  FAIL("no pass ", std::string(pass));
  return changed;
}

Graph after_all(const Graph& graph, const std::vector<std::string>& disabled) {
  return after_all(graph, pass_context(), disabled);
}

Graph after_all(const Graph& graph, const PassContext& context, const std::vector<std::string>& disabled) {
  Graph changed = graph;
  CheckedPasses checked(changed, context);
  for (const Pass& pass : passes().subspan(passes_before_inference)) {
    if (std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end()) continue;
    checked.run(pass);
    INFO(std::string(pass.name));
    changed.check();
  }
  return changed;
}

double worst_difference(const Graph& before, const Graph& after, unsigned seed) {
  const std::vector<Tensor> inputs = random_inputs(before, seed);
  const std::vector<Tensor> a = interpret(before, inputs), b = interpret(after, inputs);
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = larger_error(worst, relative_error(a[i], b[i]));
  return worst;
}

int count(const Graph& graph, std::string_view op) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.type() == op; }));
}

const Node& only(const Graph& graph, std::string_view op) {
  INFO(graph.dump());
  REQUIRE(count(graph, op) == 1);
  return *std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.type() == op; });
}

}  // namespace lenslet::test
