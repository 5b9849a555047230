// PlanOptions::input_values: inputs that decide shapes; and inference of output shapes by loading.

#include <doctest/doctest.h>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"

namespace lenslet::test {
namespace {

// x[2,6] reshaped to what input "shape" says, then Relu.
Graph reshape_net() {
  Graph graph;
  graph.name = "reshape";
  const ValueId x = add_port(graph, "x", DType::f32, {2, 6});
  const ValueId shape = add_port(graph, "shape", DType::i64, {2});
  add_output(graph, add_node(graph, "Relu", {add_node(graph, "Reshape", {x, shape})}));
  return graph;
}

Tensor dims(std::initializer_list<std::int64_t> values) {
  return Tensor::of<std::int64_t>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

PlanOptions fixed(Tensor shape) {
  PlanOptions options = on_cpu(1, 1);
  options.input_values = {{"shape", std::move(shape)}};
  return options;
}

bool mentions(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

TEST_CASE("exec/input_values/decide_shapes") {
  const Model model = make_model(reshape_net());
  const Tensor x = random_tensor({2, 6}, 3);
  for (const auto& [asked, expected] : {std::pair{dims({4, 3}), Shape{4, 3}}, {dims({-1, 2}), Shape{6, 2}}}) {
    Runner runner(model, fixed(asked));
    CHECK(runner.plan().outputs[0].second == expected);
    const Tensor inputs[] = {x, asked};
    const Tensor& output = runner.run(inputs)[0];
    REQUIRE(output.shape() == expected);
    for (std::size_t i = 0; i < 12; ++i) CHECK(output.values<float>()[i] == std::max(0.0F, x.values<float>()[i]));
  }
}

TEST_CASE("exec/input_values/are_copied_at_planning") {
  const Model model = make_model(reshape_net());
  std::int64_t memory[] = {3, 4};
  Runner runner(model, fixed(Tensor::view(DType::i64, Shape{2}, memory)));
  memory[0] = 12, memory[1] = 1;
  const Tensor as_planned[] = {random_tensor({2, 6}, 1), dims({3, 4})};
  CHECK(runner.run(as_planned)[0].shape() == Shape{3, 4});
  const Tensor changed[] = {as_planned[0], dims({12, 1})};
  const Error refused = error_of([&] { runner.run(changed); });
  CHECK(refused.kind() == ErrorKind::invalid_argument);
  CHECK(mentions(refused, "input 'shape' has another value"));
}

TEST_CASE("exec/input_values/values_of_other_types_and_shapes_are_refused") {
  const Model model = make_model(reshape_net());
  const auto refuses = [&](const PlanOptions& options, const std::string& text) {
    const Error error = error_of([&] { Runner(model, options); });
    CAPTURE(std::string(error.what()));
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(mentions(error, text));
  };
  refuses(fixed(Tensor::of<float>(Shape{2}, {3, 4})), "float32");
  refuses(fixed(dims({1, 3, 4})), "does not fit the declared");
  refuses(fixed(Tensor()), "missing");
  PlanOptions options = fixed(dims({3, 4}));
  options.input_values.emplace_back("shape", dims({4, 3}));
  refuses(options, "two values");
  options.input_values = {{"shapes", dims({3, 4})}};
  refuses(options, "no input is called shapes (inputs: x, shape)");
  options = fixed(dims({3, 4}));
  options.input_shapes = {{"shape", Shape{3}}};
  refuses(options, "input shape");
  // 12 elements do not fit: the value is checked, not only stored.
  CHECK(mentions(error_of([&] { Runner(model, fixed(dims({5, 5}))); }), "Reshape"));
}

TEST_CASE("exec/input_values/loading_still_checks_the_rest") {
  Graph graph = reshape_net();
  const ValueId weights = add_weights(graph, "w", {7, 2}, 1.0F, 1);
  add_output(graph, add_node(graph, "MatMul", {graph.inputs[0], weights}));  // [2,6] x [7,2]
  CHECK(mentions(error_of([&] { make_model(std::move(graph)); }), "MatMul"));
}

TEST_CASE("exec/model/outputs_are_inferred_where_undeclared") {
  // add_output declares nothing: [N,5] of the small net, whose batch is free.
  const Model model = make_model(small_net());
  const PortInfo& port = model.outputs()[0];
  CHECK(port.dtype == DType::f32);
  CHECK(port.dims == std::vector<std::int64_t>{-1, 5});

  Graph shapes;
  const ValueId x = add_input(shapes, {3, 4, 5});
  add_output(shapes, add_node(shapes, "Shape", {x}));
  const Model integers = make_model(std::move(shapes));
  CHECK(integers.outputs()[0].dtype == DType::i64);
  CHECK(integers.outputs()[0].dims == std::vector<std::int64_t>{4});

  // Also for a dimension declared without a size and a name.
  Graph unsized;
  add_output(unsized, add_node(unsized, "Shape", {add_input(unsized, {3, 4, 5})}));
  unsized.output_ports[0] = {.name = "y", .dtype = DType::i64, .dims = {-1}, .dim_names = {""}};
  CHECK(make_model(std::move(unsized)).outputs()[0].dims == std::vector<std::int64_t>{4});

  // A declared name stays; an unknown dimension next to it is filled in.
  Graph named = small_net();
  named.output_ports[0].dims = {-1, -1};
  named.output_ports[0].dim_names = {"images", ""};
  const Model declared = make_model(std::move(named));
  CHECK(declared.outputs()[0].str() == "[images,5]");

  // Nothing is inferred if more than the batch is free.
  Graph free;
  add_output(free, add_node(free, "Relu", {add_port(free, "x", DType::f32, {-1, -1})}));
  CHECK(make_model(std::move(free)).outputs()[0].dims.empty());

  // What depends on an input's value stays unknown until planning.
  CHECK(make_model(reshape_net()).outputs()[0].dims.empty());
}

}  // namespace
}  // namespace lenslet::test
