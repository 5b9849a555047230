#include "small_net.h"

#include <random>

namespace lenslet::test {

ValueId add_node(Graph& graph, std::shared_ptr<const Op> op, const std::string& name, std::vector<ValueId> inputs) {
  Node node;
  node.name = name;
  node.op = std::move(op);
  node.inputs = std::move(inputs);
  const ValueId output = graph.add_value(name + ":0");
  node.outputs = {output};
  graph.nodes.push_back(std::move(node));
  return output;
}

ValueId add_node(Graph& graph, const std::string& op, std::vector<ValueId> inputs, const AttributeList& attributes) {
  auto made = make_op(op, "", attributes, inputs.size());
  return add_node(graph, std::move(made), op + "_" + std::to_string(graph.nodes.size()), std::move(inputs));
}

Tensor random_tensor(Shape shape, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Tensor tensor(DType::f32, shape);
  for (float& value : tensor.values<float>())
    value = static_cast<float>(static_cast<double>(engine() >> 11) * 0x1p-52 - 1.0);
  return tensor;
}

ValueId add_weights(Graph& graph, const std::string& name, Shape shape, float scale, std::uint64_t seed) {
  Tensor tensor = random_tensor(shape, seed);
  for (float& value : tensor.values<float>()) value *= scale;
  return graph.add_constant(name, std::move(tensor));
}

ValueId add_input(Graph& graph, std::initializer_list<std::int64_t> dims) {
  PortInfo port;
  port.name = "x";
  port.dims = {-1};
  port.dim_names = {"N"};
  for (const std::int64_t dim : dims) {
    port.dims.push_back(dim);
    port.dim_names.emplace_back();
  }
  const ValueId value = graph.add_value("x");
  graph.inputs.push_back(value);
  graph.input_ports.push_back(port);
  return value;
}

ValueId add_port(Graph& graph, const std::string& name, DType dtype, std::vector<std::int64_t> dims) {
  PortInfo port;
  port.name = name;
  port.dtype = dtype;
  port.dim_names.resize(dims.size());
  port.dims = std::move(dims);
  const ValueId id = graph.add_value(name);
  graph.value(id).dtype = dtype;
  graph.inputs.push_back(id);
  graph.input_ports.push_back(std::move(port));
  return id;
}

void add_output(Graph& graph, ValueId value) {
  PortInfo port;
  port.name = graph.value(value).name;
  graph.outputs.push_back(value);
  graph.output_ports.push_back(port);
}

Graph ports_net() {
  Graph graph;
  graph.name = "ports";
  const ValueId x = add_input(graph, {2, 3, 5});
  add_output(graph, x);
  add_output(graph, add_node(graph, "Flatten", {x}));
  add_output(graph, graph.add_constant("c", Tensor::of<float>({3}, {1, 2, 3})));
  add_output(graph, add_node(graph, "Relu", {x}));
  return graph;
}

Graph renaming_net() {
  Graph graph;
  graph.name = "renames";
  add_output(graph, add_node(graph, "Flatten", {add_input(graph, {0, 3})}));
  return graph;
}

PlanOptions on_cpu(std::int64_t batch, int threads) {
  PlanOptions options;
  options.batch = batch;
  options.threads = threads;
  options.device = "cpu";
  return options;
}

Graph small_net() {
  using Integers = std::vector<std::int64_t>;
  Graph graph;
  graph.name = "small";
  const ValueId x = add_input(graph, {3, 17, 19});
  const ValueId w1 = add_weights(graph, "w1", {8, 3, 3, 3}, 0.3F, 1);
  const ValueId b1 = add_weights(graph, "b1", {8}, 0.1F, 2);
  const ValueId w2 = add_weights(graph, "w2", {8, 8, 3, 3}, 0.2F, 3);
  const ValueId fc = add_weights(graph, "fc", {5, 8}, 0.5F, 4);
  const ValueId first =
      add_node(graph, "Conv", {x, w1, b1}, {{"strides", Integers{2, 2}}, {"pads", Integers{1, 1, 1, 1}}});
  const ValueId relu = add_node(graph, "Relu", {first});
  const ValueId second = add_node(graph, "Conv", {relu, w2}, {{"pads", Integers{1, 1, 1, 1}}});
  const ValueId sum = add_node(graph, "Add", {second, relu});
  const ValueId active = add_node(graph, "Relu", {sum});
  const ValueId pooled = add_node(graph, "GlobalAveragePool", {active});
  const ValueId flat = add_node(graph, "Flatten", {pooled});
  add_output(graph, add_node(graph, "Gemm", {flat, fc}, {{"transB", std::int64_t{1}}}));
  return graph;
}

namespace {

ValueId conv(Graph& graph, const std::string& name, ValueId x, Shape filter, std::int64_t groups, std::int64_t pad,
             std::int64_t stride = 1) {
  const ValueId w = add_weights(graph, name + ".w", filter, 0.3F, 7);
  const ValueId bias = add_weights(graph, name + ".b", {filter[0]}, 1, 8);
  return add_node(graph, "Conv", {x, w, bias},
                  {{"group", groups},
                   {"pads", std::vector<std::int64_t>{pad, pad, pad, pad}},
                   {"strides", std::vector<std::int64_t>{stride, stride}}});
}
ValueId relu(Graph& graph, ValueId x) { return add_node(graph, "Relu", {x}); }

}  // namespace

Graph inverted_residuals() {
  Graph graph;
  const ValueId image = add_input(graph, {5, 421, 31});
  const ValueId x = relu(graph, conv(graph, "stem", image, {8, 5, 3, 3}, 1, 1));
  const ValueId wide = relu(graph, conv(graph, "wide", x, {128, 8, 1, 1}, 1, 0));
  const ValueId filtered = relu(graph, conv(graph, "3x3", wide, {128, 1, 3, 3}, 128, 1));
  const ValueId sum = add_node(graph, "Add", {x, conv(graph, "narrow", filtered, {8, 128, 1, 1}, 1, 0)});
  const ValueId wider = relu(graph, conv(graph, "wide2", sum, {130, 8, 1, 1}, 1, 0));
  const ValueId halved = relu(graph, conv(graph, "5x5", wider, {130, 1, 5, 5}, 130, 2, 2));
  add_output(graph, conv(graph, "narrow2", halved, {9, 130, 1, 1}, 1, 0));
  return graph;
}

}  // namespace lenslet::test
