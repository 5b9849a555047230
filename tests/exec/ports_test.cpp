// Unread inputs, and first dimensions other than a batch.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "tests/exec/small_net.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

/// y = Relu(x) beside a label, as in exports of training graphs.
Model with_label(bool label_first, std::vector<std::int64_t> label_dims = {1}) {
  Graph graph;
  graph.name = "labelled";
  ValueId x = no_id;
  const auto add_x = [&] { x = add_input(graph, {3, 4}); };
  if (!label_first) add_x();
  add_port(graph, "label", DType::i64, std::move(label_dims));
  if (label_first) add_x();
  add_output(graph, add_node(graph, "Relu", {x}));
  return make_model(std::move(graph));
}

bool is_relu_of(const Tensor& y, const Tensor& x) {
  const auto got = y.values<float>(), given = x.values<float>();
  return std::equal(got.begin(), got.end(), given.begin(), given.end(),
                    [](float a, float b) { return a == std::max(b, 0.0F); });
}

/// y = Relu(x) in rows of 4 images, as in a trace with a batch of 4.
Graph baked(std::int64_t images) {
  Graph graph;
  graph.name = "baked";
  const ValueId x = add_input(graph, {3, 4});
  const ValueId rows = graph.add_constant("rows", Tensor::of<std::int64_t>(Shape{2}, {images, 12}));
  add_output(graph, add_node(graph, "Relu", {add_node(graph, "Reshape", {x, rows})}));
  return graph;
}

}  // namespace

TEST_CASE("exec/model/a_broken_graph_is_an_internal_error") {
  Graph graph = small_net();
  std::swap(graph.nodes[0], graph.nodes[1]);
  CHECK_ERROR(make_model(std::move(graph)), internal, "broken graph: ");
}

TEST_CASE("exec/model/parameters_are_constants_that_are_no_shapes") {
  Graph graph;
  graph.name = "parameters";
  const ValueId rows = graph.add_constant("rows", Tensor::of<std::int64_t>(Shape{2}, {-1, 12}));
  const ValueId x = add_node(graph, "Reshape", {add_input(graph, {3, 4}), rows});
  add_output(graph, add_node(graph, "MatMul", {x, add_weights(graph, "w", {12, 5}, 1, 1)}));
  const Model model = make_model(std::move(graph));
  CHECK(model.parameter_elems() == 60);
  CHECK(model.output_op(0) == "MatMul");
  CHECK_ERROR(model.output_op(1), invalid_argument, "there is no output 1: the model has 1");
}

TEST_CASE("exec/ports/an_input_that_nothing_reads") {
  const Tensor x = random_tensor({1, 3, 4}, 3), label = Tensor::of<std::int64_t>(Shape{1}, {7});
  for (const bool first : {false, true}) {
    const Model model = with_label(first);
    CAPTURE(first);
    CHECK(model.inputs()[first ? 0 : 1].unread);
    CHECK(!model.inputs()[first ? 1 : 0].unread);
    Runner runner(model, on_cpu());
    const std::array<Tensor, 2> both = first ? std::array{label, x} : std::array{x, label};
    const std::array<Tensor, 2> without = first ? std::array{Tensor(), x} : std::array{x, Tensor()};
    CHECK(is_relu_of(runner.run(both)[0], x));
    CHECK(is_relu_of(runner.run(without)[0], x));
    std::array<IoTensor, 2> of_app{IoTensor{without[0]}, IoTensor{without[1]}};
    CHECK(is_relu_of(runner.run(of_app, RunOptions())[0], x));
    if (!first) {
      CHECK(is_relu_of(runner.run(x)[0], x));
      CHECK(is_relu_of(runner.run(std::span(of_app).first(1), RunOptions())[0], x));
    }
    // The input that is read is still required.
    CHECK(error_of([&] { runner.run(std::array{Tensor(), Tensor()}); }).kind() == ErrorKind::invalid_argument);
    CHECK(error_of([&] { runner.run(std::span<const Tensor>()); }).kind() == ErrorKind::invalid_argument);
    CHECK(error_of([&] { runner.run(std::array{x, x, x}); }).kind() == ErrorKind::invalid_argument);
  }
}

TEST_CASE("exec/ports/an_input_that_nothing_reads_has_no_say_in_shapes") {
  const Model model = with_label(true, {2, -1});  // its own batch, and a free dimension
  PlanOptions options = on_cpu(5);
  options.other_shapes = 2;
  Runner runner(model, options);
  for (const std::int64_t batch : {5, 2, 5}) {
    const Tensor x = random_tensor({batch, 3, 4}, 4);
    CHECK(is_relu_of(runner.run(std::array{Tensor(), x})[0], x));
    CHECK(is_relu_of(runner.run(std::array{Tensor::of<std::int64_t>(Shape{3}, {1, 2, 3}), x})[0], x));
  }
}

TEST_CASE("exec/ports/a_first_dimension_that_cannot_be_1") {
  const Model model = make_model(baked(4));
  const Tensor x = random_tensor({4, 3, 4}, 5);
  Runner by_batch(model, on_cpu(4));
  CHECK(is_relu_of(by_batch.run(x)[0], x));
  PlanOptions by_shape = on_cpu();
  by_shape.input_shapes = {{"x", Shape{4, 3, 4}}};
  Runner runner(model, by_shape);
  CHECK(is_relu_of(runner.run(x)[0], x));
  CHECK(model.plan(by_shape).outputs[0].second == Shape{4, 12});
  // Without a batch it counts as one image, and the error says so.
  const Error error = error_of([&] { Runner(model, on_cpu()); });
  CHECK(error.kind() == ErrorKind::invalid_model);
  CHECK(std::string(error.what()).find("x [N,3,4] was taken for a batch of 1: --batch or --shape") !=
        std::string::npos);
}

TEST_CASE("exec/ports/what_is_declared_or_given_was_not_taken_for_a_batch") {
  Graph graph;
  graph.name = "baked";
  add_port(graph, "unread", DType::i64, {-1});
  add_output(graph, add_node(graph, "Relu", {add_port(graph, "number", DType::f32, {})}));
  add_output(graph, add_node(graph, "Relu", {add_port(graph, "empty", DType::f32, {0, 3})}));
  add_output(graph, add_node(graph, "Relu", {add_port(graph, "fixed", DType::f32, {2, 3})}));
  const ValueId s = add_port(graph, "s", DType::f32, {-1, 3, 4});
  const ValueId rows = graph.add_constant("rows", Tensor::of<std::int64_t>(Shape{2}, {4, 12}));
  add_output(graph, add_node(graph, "Reshape", {s, rows}));
  const Model model = make_model(std::move(graph));
  check_error(ErrorKind::invalid_model, "(input s [?,3,4] was taken for a batch of 1:", [&] { model.plan(on_cpu()); });
  PlanOptions given = on_cpu();
  given.input_shapes = {{"s", Shape{3, 3, 4}}};
  const Error error = error_of([&] { model.plan(given); });
  CHECK(error.kind() == ErrorKind::invalid_model);
  CHECK_MESSAGE(!contains(error.what(), "was taken for"), std::string(error.what()));
}

TEST_CASE("exec/ports/what_no_batch_mends_is_refused_at_once") {
  Graph alone;
  alone.name = "alone";
  const ValueId x = add_input(alone, {3, 4});
  add_output(alone, add_node(alone, "Relu", {x}));
  const ValueId a = alone.add_constant("a", random_tensor({5, 5}, 1)),
                b = alone.add_constant("b", random_tensor({7, 7}, 2));
  add_output(alone, add_node(alone, "MatMul", {a, b}));
  CHECK(error_of([&] { make_model(std::move(alone)); }).kind() == ErrorKind::invalid_model);
}

// y = Relu(x [N,3,4]) or [N,0,4]: a file's declarations of an output are kept, missing ones are inferred.
TEST_CASE("exec/ports/declarations_of_outputs_are_completed") {
  using Ints = std::vector<std::int64_t>;
  using Names = std::vector<std::string>;
  struct Row {
    std::int64_t channels;
    DType dtype;
    Ints dims;
    Names names;
    Ints completed;
    Names completed_names;
  };
  const Row rows[] = {{3, DType::f32, {}, {}, {-1, 3, 4}, {"", "", ""}},
                      {0, DType::f32, {}, {}, {-1, 0, 4}, {"", "", ""}},
                      {3, DType::f32, {-1, -1, 4}, {"N", "", ""}, {-1, 3, 4}, {"N", "", ""}},
                      {3, DType::f32, {-1, -1, 4}, {}, {-1, 3, 4}, {"", "", ""}},
                      {3, DType::f32, {-1, -1, -1}, {"N", "C", ""}, {-1, -1, 4}, {"N", "C", ""}},
                      {3, DType::f32, {-1, -1, -1}, {"N", "C"}, {-1, -1, 4}, {"N", "C", ""}},
                      {3, DType::f32, {-1, 0, -1}, {}, {-1, 0, 4}, {"", "", ""}},
                      {3, DType::f32, {-1, 5}, {"N", "M"}, {-1, 3, 4}, {"", "", ""}},
                      {3, DType::i64, {-1, 3, 4}, {"N", "", ""}, {-1, 3, 4}, {"N", "", ""}}};
  for (const Row& row : rows) {
    Graph graph;
    graph.name = "declared";
    add_output(graph, add_node(graph, "Relu", {add_input(graph, {row.channels, 4})}));
    graph.output_ports[0].dtype = row.dtype;
    graph.output_ports[0].dims = row.dims;
    graph.output_ports[0].dim_names = row.names;
    const PortInfo port = make_model(std::move(graph)).outputs()[0];
    CAPTURE(port.str());
    CHECK(port.dtype == DType::f32);
    CHECK(port.dims == row.completed);
    CHECK(port.dim_names == row.completed_names);
  }
}
