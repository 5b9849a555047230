// From bytes to a Graph, and every reason for a refusal.

#include "models/load_onnx.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "lenslet/runner.h"
#include "runtime/graph/infer_shapes.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

Graph load(const ModelText& model) {
  const std::string data = model.bytes();
  Graph graph = load_onnx(bytes_of(data), nullptr, {}, "test");
  graph.check();
  return graph;
}

const Value& value_of(const Graph& graph, const std::string& name) {
  const auto found =
      std::find_if(graph.values.begin(), graph.values.end(), [&](const Value& value) { return value.name == name; });
  REQUIRE(found != graph.values.end());
  return *found;
}

std::vector<std::string> node_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("load_onnx/ports") {
  ModelText model = relu_model();
  model.inputs = {port("x", f32, {-1, 3, 0, 5})};
  const Graph graph = load(model);
  REQUIRE(graph.input_ports.size() == 1);
  const PortInfo& port = graph.input_ports.front();
  CHECK(port.name == "x");
  CHECK(port.dims == std::vector<std::int64_t>{-1, 3, 0, 5});
  CHECK(port.dim_names == Names{"N", "", "", ""});
  CHECK(graph.value(graph.inputs[0]).name == "x");
  CHECK(graph.value(graph.outputs[0]).name == "y");
  CHECK(graph.name == "test");
}

// Placeholders that exporters write for unknown sizes are dropped; other names stay.
TEST_CASE("load_onnx/names_of_unknown_dimensions") {
  for (const char* const unknown : {"?", "??", "-1", "*", "0", "", "None", "none", "NONE", "null", "NaN", "Unknown",
                                    "unknown", "unk", "unk__123", "unknown_7", "undefined", "any", "dynamic"}) {
    CAPTURE(unknown);
    ModelText model = relu_model();
    model.inputs = {port("x", f32, {-1, 3, -1, -1}, unknown)};
    CHECK(load(model).input_ports.front().dim_names == Names{"", "", "", ""});
    CHECK(load(model).input_ports.front().dims == std::vector<std::int64_t>{-1, 3, -1, -1});
  }
  for (const char* const name : {"N", "batch", "unknowns", "nonempty", "s0", "dynamic_axes_1", "anything", "é"}) {
    ModelText model = relu_model();
    model.inputs = {port("x", f32, {-1, 3, -1, 5}, name)};
    CHECK(load(model).input_ports.front().dim_names == Names{name, "", name, ""});
  }
}

TEST_CASE("load_onnx/initializers_listed_as_inputs_are_not_inputs") {
  ModelText model = relu_model();
  model.ir_version = 3;
  model.nodes = {node("Add", {"x", "w"}, {"y"}, "add")};
  model.inputs = {port("w", f32, {3}), port("x", f32, {2, 3})};
  model.initializers = {raw_tensor<float>("w", f32, {3}, {1, 2, 3}), raw_tensor<float>("unused", f32, {1}, {1})};
  const Graph graph = load(model);
  REQUIRE(graph.inputs.size() == 1);
  CHECK(graph.input_ports[0].name == "x");
  CHECK(value_of(graph, "w").constant.values<float>()[2] == 3);
  CHECK(std::none_of(graph.values.begin(), graph.values.end(), [](const Value& v) { return v.name == "unused"; }));
}

TEST_CASE("load_onnx/constants_in_all_forms") {
  const auto constant = [](const std::string& name, int type, const std::function<void(pbf_writer&)>& value) {
    ModelText model = relu_model();
    model.nodes = {node("Constant", {}, {"c", ""}, "c", [&](pbf_writer& n) { attribute(n, name, type, value); }),
                   node("Identity", {"c"}, {"y"}, "id")};
    return value_of(load(model), "c").constant;
  };
  const Tensor tensor = constant("value", 4, [](pbf_writer& a) {
    a.add_message(5, raw_tensor<float>("", f32, {1, 2}, {1, 2}));
  });
  CHECK(tensor.shape() == Shape{1, 2});
  CHECK(tensor.values<float>()[1] == 2);
  const Tensor half =
      constant("value", 4, [](pbf_writer& a) { a.add_message(5, raw_tensor<std::uint16_t>("", f16, {1}, {0x4000})); });
  CHECK(half.dtype() == DType::f16);  // models are loaded unconverted
  CHECK(*static_cast<const std::uint16_t*>(half.data()) == 0x4000);
  const Tensor real = constant("value_float", 1, [](pbf_writer& a) { a.add_float(2, 0.5F); });
  CHECK(real.shape().rank() == 0);
  CHECK(real.values<float>()[0] == 0.5F);
  const Tensor integer = constant("value_int", 2, [](pbf_writer& a) { a.add_int64(3, -7); });
  CHECK(integer.shape().rank() == 0);
  CHECK(integer.values<std::int64_t>()[0] == -7);
  const std::vector<std::int64_t> two{4, 5};
  const Tensor integers =
      constant("value_ints", 7, [&](pbf_writer& a) { a.add_packed_int64(8, two.begin(), two.end()); });
  CHECK(integers.shape() == Shape{2});
  CHECK(integers.values<std::int64_t>()[1] == 5);
  const Tensor reals = constant("value_floats", 6, [](pbf_writer& a) {
    a.add_float(7, 1);
    a.add_float(7, 2);
  });
  CHECK(reals.values<float>()[1] == 2);
  const std::vector<float> three{1, 2, 3};
  const Tensor packed =
      constant("value_floats", 6, [&](pbf_writer& a) { a.add_packed_float(7, three.begin(), three.end()); });
  CHECK(packed.shape() == Shape{3});
  CHECK(packed.values<float>()[2] == 3);
  CHECK(constant("value_ints", 7, [](pbf_writer&) {}).elems() == 0);
  // Without a declared type the existing field decides.
  CHECK(constant("value_int", 0, [](pbf_writer& a) { a.add_int64(3, 3); }).values<std::int64_t>()[0] == 3);

  CHECK_ERROR(constant("value_string", 3, [](pbf_writer& a) { a.add_bytes(4, "s"); }), unsupported, "strings");
  CHECK_ERROR(constant("sparse_value", 11, [](pbf_writer& a) { a.add_message(22, std::string("")); }), unsupported,
              "sparse");
  CHECK_ERROR(constant("value_int", 2, [](pbf_writer& a) { a.add_float(2, 1); }), invalid_model, "declared an integer");
  CHECK_ERROR(constant("other", 2, [](pbf_writer& a) { a.add_int64(3, 1); }), invalid_model, "'other'");
}

// A field of AttributeProto, and the kind of its value.
TEST_CASE("load_onnx/kinds_of_attributes") {
  struct Kind {
    int type;
    std::uint32_t field;
    const char* words;
  };
  constexpr Kind kinds[] = {{1, 2, "a float"},
                            {2, 3, "an integer"},
                            {3, 4, "a string"},
                            {4, 5, "a tensor"},
                            {5, 6, "a subgraph"},
                            {6, 7, "a list of floats"},
                            {7, 8, "a list of integers"},
                            {8, 9, "a list of strings"},
                            {9, 10, "a list of tensors"},
                            {10, 11, "a list of subgraphs"},
                            {11, 22, "a sparse tensor"},
                            {12, 23, "a list of sparse tensors"},
                            {13, 14, "a type"},
                            {14, 15, "a list of types"}};
  const auto add = [](pbf_writer& a, const Kind& kind) {
    if (kind.field == 2)
      a.add_float(2, 1);
    else if (kind.field == 3)
      a.add_int64(3, 1);
    else if (kind.field == 7)
      a.add_float(7, 1);
    else if (kind.field == 8)
      a.add_int64(8, 1);
    else if (kind.field == 5)
      a.add_message(5, raw_tensor<float>("", f32, {1}, {1}));
    else if (kind.field == 4 || kind.field == 9)
      a.add_string(kind.field, "relu");
    else
      a.add_message(kind.field, message([](pbf_writer& inner) { inner.add_string(1, ""); }));
  };
  const auto with = [&](int declared, std::vector<Kind> held) {
    ModelText model = relu_model();
    model.nodes = {node("Relu", {"x"}, {"y"}, "relu", [&](pbf_writer& n) {
      attribute(n, "a", declared, [&](pbf_writer& a) {
        for (const Kind& kind : held) add(a, kind);
      });
    })};
    return load(model);
  };
  for (const Kind& kind : kinds) {
    CAPTURE(kind.words);
    const bool is_read = kind.type != 5 && kind.type < 9;
    const std::string refusal =
        is_read ? "'a' is not supported" : std::string("'a' is ") + kind.words + ", which is not supported";
    for (const int declared : {0, kind.type}) CHECK_ERROR(with(declared, {kind}), unsupported, refusal);
    const Kind& other = kinds[static_cast<std::size_t>(kind.type % 14)];
    CHECK_ERROR(with(other.type, {kind}), invalid_model, std::string(other.words) + " and holds " + kind.words);
    CHECK_ERROR(with(kind.type, {kind, other}), invalid_model, "several kinds");
    // Declared but missing: no value, or an empty list.
    if (kind.type == 4)
      CHECK_ERROR(with(4, {}), invalid_model, "holds no tensor");
    else
      CHECK_ERROR(with(kind.type, {}), unsupported, refusal);
  }
  CHECK_ERROR(with(0, {}), invalid_model, "'a' holds no value");
  CHECK_ERROR(with(15, {}), unsupported, "of an unknown kind");
  CHECK_ERROR(with(15, {kinds[0]}), invalid_model, "declared of an unknown kind and holds a float");
}

// They appear in refusals, which are one line.
TEST_CASE("load_onnx/texts_of_attributes_can_be_shown") {
  const auto with = [](std::uint32_t field, const std::string& text) {
    ModelText model = relu_model();
    model.nodes = {node("Relu", {"x"}, {"y"}, "relu", [&](pbf_writer& n) {
      attribute(n, "a", 0, [&](pbf_writer& a) {
        if (field == 9) a.add_string(field, "first");
        a.add_string(field, text);
      });
    })};
    return load(model);
  };
  for (const std::uint32_t field : {4U, 9U}) {
    CHECK_ERROR(with(field, "two words"), unsupported, "'a' is not supported");
    CHECK_ERROR(with(field, "two\nlines"), invalid_model, "attribute 'a' holds a control character");
    CHECK_ERROR(with(field, "\x1b[2J"), invalid_model, "attribute 'a' holds a control character");
    CHECK_ERROR(with(field, "\xff"), invalid_model, "attribute 'a' is not UTF-8");
  }
}

TEST_CASE("load_onnx/optional_inputs_and_outputs") {
  ModelText model = relu_model();
  model.nodes = {node("Clip", {"x", "", "high"}, {"y", ""}, "clip")};
  model.initializers = {raw_tensor<float>("high", f32, {}, {6})};
  const Graph graph = load(model);
  REQUIRE(graph.nodes.size() == 1);
  CHECK(graph.nodes[0].inputs.size() == 3);
  CHECK(graph.nodes[0].inputs[1] == no_id);
  CHECK(graph.nodes[0].outputs.size() == 1);
  model.nodes = {node("Clip", {"x", "", ""}, {"y"}, "clip")};
  CHECK(load(model).nodes[0].inputs.size() == 1);
}

TEST_CASE("load_onnx/order_and_names") {
  ModelText model = relu_model();
  model.nodes = {node("Relu", {"b"}, {"y"}, "last"), node("Relu", {"x"}, {"a"}), node("Relu", {"a"}, {"b"}, "last")};
  const Graph graph = load(model);
  CHECK(node_names(graph) == Names{"Relu_1", "last_2", "last"});
  // A generated name differs from all names in the file.
  model.nodes = {node("Relu", {"x"}, {"a"}), node("Relu", {"a"}, {"b"}, "Relu_0"),
                 node("Relu", {"b"}, {"y"}, "Relu_0_")};
  CHECK(node_names(load(model)) == Names{"Relu_0__", "Relu_0", "Relu_0_"});
}

TEST_CASE("load_onnx/what_a_node_is_read_as_has_its_name") {
  const auto names_of = [](const char* op) {
    ModelText model = relu_model();
    model.opsets.emplace_back("com.microsoft", 1);
    model.nodes = {node(op, {"x", "x"}, {"y"}, "n", [](pbf_writer& n) { n.add_string(7, "com.microsoft"); })};
    return node_names(load(model));
  };
  CHECK(names_of("TransposeMatMul") == Names{"n"});
  CHECK(names_of("GemmFastGelu") == Names{"n:MatMul_0", "n:Gelu_1"});
  // All outputs of a replaced node are produced.
  ModelText model = relu_model();
  model.nodes = {node("DynamicQuantizeLinear", {"x"}, {"y", "scale", "zero"}, "n")};
  model.outputs = {port("y", u8, {2, 3}), port("scale", f32, {}), port("zero", u8, {})};
  const Graph graph = load(model);
  for (const ValueId output : graph.outputs)
    CHECK(std::ranges::any_of(
        graph.nodes, [&](const Node& one) { return std::ranges::find(one.outputs, output) != one.outputs.end(); }));
  CHECK(std::ranges::find(graph.nodes.front().inputs, graph.inputs.at(0)) != graph.nodes.front().inputs.end());
}

TEST_CASE("load_onnx/types_stay_as_they_are") {
  ModelText model = relu_model();
  model.nodes = {node("Mul", {"x", "w"}, {"y"}, "mul")};
  model.inputs = {port("x", f16, {2, 3})};
  model.outputs = {port("y", f16, {2, 3})};
  model.initializers = {raw_tensor<std::uint16_t>("w", f16, {1}, {0x4000})};
  const Graph graph = load(model);
  CHECK(graph.input_ports[0].dtype == DType::f16);
  CHECK(graph.output_ports[0].dtype == DType::f16);
  REQUIRE(graph.nodes.size() == 1);
  CHECK(graph.value(graph.inputs[0]).dtype == DType::f16);
  CHECK(value_of(graph, "w").dtype == DType::f16);
}

TEST_CASE("load_onnx/one_error_lists_every_node_that_cannot_run") {
  ModelText model = relu_model();
  model.opsets.emplace_back("com.acme", 2);
  model.nodes = {
      node("Frobnicate", {"x"}, {"a"}, "first"),
      node("Relu", {"a"}, {"b"}, "fine"),
      node("Relu", {"b"}, {"c"}, "foreign", [](pbf_writer& n) { n.add_string(7, "com.acme"); }),
      node("Relu", {"c", "c"}, {"d"}, "crowded"),
      node("Relu", {"d"}, {"e"}, "decorated",
           [](pbf_writer& n) { attribute(n, "colour", 2, [](pbf_writer& a) { a.add_int64(3, 1); }); }),
      node("Loop", {"nowhere"}, {"y"}, "",
           [](pbf_writer& n) { attribute(n, "body", 5, [](pbf_writer& a) { a.add_message(6, std::string("")); }); }),
  };
  const Error error = error_of([&] { load(model); });
  const std::string text = error.what();
  CAPTURE(text);
  CHECK(error.kind() == ErrorKind::invalid_model);
  for (const char* part : {"node first (Frobnicate, ai.onnx opset 13): the operator is not supported",
                           "node foreign (Relu, com.acme opset 2): the operator is not supported",
                           "node crowded (Relu, ai.onnx opset 13)", "has 2 inputs", "node decorated", "'colour'",
                           "node Loop_5", "subgraph", "reads 'nowhere', which nothing defines"})
    CHECK_MESSAGE(contains(text, part), part);
  CHECK(!contains(text, "node fine"));
  // The first line is complete in itself; a line for each problem follows.
  CHECK(contains(text.substr(0, text.find('\n')), "6 reasons"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 6);
  // A single problem gives one line.
  model.nodes = {node("Frobnicate", {"x"}, {"y"}, "first")};
  CHECK_ERROR(load(model), unsupported, "node first (Frobnicate, ai.onnx opset 13): the operator is not supported");
}

// At most eight operators are counted, those with most nodes first; of a long cycle 20 nodes are named.
TEST_CASE("load_onnx/long_lists_of_reasons_are_cut") {
  for (const int ops : {8, 9, 11}) {
    ModelText model = relu_model();
    for (int op = 0; op < ops; ++op)
      for (int repeat = 0; repeat <= (op == 4 ? 2 : op == 6 ? 1 : 0); ++repeat)
        model.nodes.push_back(node("Op" + std::to_string(10 + op), {"x"}, {}));
    const std::string text = error_of([&] { load(model); }).what();
    CHECK_MESSAGE(
        contains(text, "cannot run for " + std::to_string(ops + 3) +
                           " reasons (Op14 x3, Op16 x2, Op10 x1, Op11 x1, Op12 x1, Op13 x1, Op15 x1, Op17 x1" +
                           (ops == 8   ? ")"
                            : ops == 9 ? " and 1 more operators)"
                                       : " and 3 more operators)") +
                           ", the first: node Op10_1 (Op10, ai.onnx opset 13): the operator is not supported"),
        text);
  }
  for (const int count : {19, 20, 21, 25}) {
    ModelText model = relu_model();
    for (int i = 0; i < count; ++i)
      model.nodes.push_back(node("Neg", {"v" + std::to_string((i + count - 1) % count)}, {"v" + std::to_string(i)}));
    const std::string text = error_of([&] { load(model); }).what();
    std::string names;
    for (int i = 0; i < std::min(count, 20); ++i)
      names += "node Neg_" + std::to_string((i + 1) % count + 1) + " (Neg) -> ";
    names += count > 20 ? "... " + std::to_string(count - 20) + " more" : "node Neg_2 (Neg)";
    CHECK_MESSAGE(contains(text, "the graph has a cycle: " + names), text);
    CHECK(text.ends_with(names));
  }
}

TEST_CASE("load_onnx/numbers_of_inputs_and_outputs_are_those_of_the_operator") {
  struct Row {
    const char* op;
    std::size_t inputs, outputs;
    const char* refusal;
  };
  const Row rows[] = {{"Relu", 1, 1, ""},
                      {"Relu", 0, 1, "has 0 inputs; the operator takes 1"},
                      {"Relu", 2, 1, "has 2 inputs; the operator takes 1"},
                      {"Relu", 1, 2, "has 2 outputs; the operator takes 1"},
                      {"Clip", 1, 1, ""},
                      {"Clip", 3, 1, ""},
                      {"Clip", 4, 1, "has 4 inputs; the operator takes 1 to 3"},
                      {"Concat", 1, 1, ""},
                      {"Concat", 40, 1, ""},
                      {"Concat", 0, 1, "has 0 inputs; the operator takes at least 1"},
                      {"Constant", 0, 1, ""},
                      {"Constant", 1, 1, "has 1 inputs; the operator takes 0"},
                      {"Constant", 0, 2, "has 2 outputs; the operator takes 1"},
                      {"DynamicQuantizeLinear", 0, 1, "has 0 inputs; the operator takes 1"},  // replaced by others
                      {"DynamicQuantizeLinear", 2, 1, "has 2 inputs; the operator takes 1"},
                      {"DynamicQuantizeLinear", 1, 4, "has 4 outputs; the operator takes 1 to 3"}};
  for (const Row& row : rows) {
    ModelText model = relu_model();
    std::vector<std::string> inputs(row.inputs, "x"), outputs{"y", "z", "u", "v"};
    outputs.resize(row.outputs);
    inputs.insert(inputs.end(), 2, "");  // omitted at the end: not counted
    model.nodes = {node(row.op, inputs, outputs, "n", [&](pbf_writer& n) {
      if (row.op == std::string("Concat")) attribute(n, "axis", 2, [](pbf_writer& a) { a.add_int64(3, 0); });
      if (row.op == std::string("Constant")) attribute(n, "value_int", 2, [](pbf_writer& a) { a.add_int64(3, 5); });
    })};
    CAPTURE(row.refusal);
    if (*row.refusal == 0)
      CHECK_NOTHROW(load(model));
    else
      CHECK_ERROR(load(model), invalid_model, row.refusal);
  }
}

TEST_CASE("load_onnx/damaged_graphs") {
  const auto with = [](auto change) {
    ModelText model = relu_model();
    change(model);
    return load(model);
  };
  CHECK_ERROR(with([](ModelText& m) { m.nodes.push_back(node("Relu", {"x"}, {"y"}, "twin")); }), invalid_model,
              "'y': is defined twice, by node relu (Relu) and by node twin (Relu)");
  CHECK_ERROR(with([](ModelText& m) { m.nodes.push_back(node("Relu", {"y"}, {"x"}, "back")); }), invalid_model,
              "'x': is defined twice");
  CHECK_ERROR(with([](ModelText& m) { m.inputs.push_back(m.inputs[0]); }), invalid_model, "defined twice");
  CHECK_ERROR(with([](ModelText& m) { m.outputs.push_back(m.outputs[0]); }), invalid_model, "output 'y': occurs twice");
  CHECK_ERROR(with([](ModelText& m) { m.outputs = {port("z", f32, {1})}; }), invalid_model, "is produced by no node");
  const Error twice = error_of([&] {
    with([](ModelText& m) { m.outputs = {port("z", f32, {1}), port("z", f32, {1})}; });
  });
  CHECK(contains(twice.what(), "cannot run for 2 reasons"));
  CHECK_ERROR(with([](ModelText& m) { m.outputs.clear(); }), invalid_model, "no outputs");
  CHECK_ERROR(with([](ModelText& m) {
                m.nodes = {node("Add", {"x", "w"}, {"y"}, "add")};
              }),
              invalid_model, "node add (Add): reads 'w', which nothing defines");
  CHECK_ERROR(with([](ModelText& m) { m.initializers = {raw_tensor<float>("", f32, {1}, {1})}; }), invalid_model,
              "an initializer: has no name");
  CHECK_ERROR(with([](ModelText& m) {
                m.nodes = {node("Add", {"x", "q"}, {"p"}, "one"), node("Relu", {"p"}, {"q"}, "two"),
                           node("Relu", {"q"}, {"y"}, "behind")};
              }),
              invalid_model, "node two (Relu) -> node one (Add) -> node two (Relu)");
  // Other problems are reported in addition to a cycle.
  const std::string both = error_of([&] {
                             with([](ModelText& m) {
                               m.nodes = {node("Add", {"x", "q"}, {"q"}, "one"), node("Sorcery", {"x"}, {"y"}, "two")};
                             });
                           }).what();
  for (const char* part : {"a cycle: node one (Add) -> node one (Add)", "node two (Sorcery, ai.onnx opset 13)"})
    CHECK_MESSAGE(contains(both, part), both);
  CHECK_ERROR(with([](ModelText& m) { m.inputs = {port("x", text, {1})}; }), unsupported, "input 'x'");
  CHECK_ERROR(with([](ModelText& m) { m.outputs = {port("z", text, {1})}; }), unsupported, "output 'z'");
  for (const std::uint32_t kind : {4U, 5U, 7U, 8U, 9U})
    CHECK_ERROR(with([&](ModelText& m) {
                  m.inputs = {message([&](pbf_writer& w) {
                    w.add_string(1, "x");
                    w.add_message(2, message([&](pbf_writer& type) { type.add_message(kind, std::string("")); }));
                  })};
                }),
                unsupported, "sequences");
  CHECK_ERROR(with([](ModelText& m) {
                m.inputs = {message([](pbf_writer& w) {
                  w.add_string(1, "x");
                  w.add_message(2, message([](pbf_writer& type) { type.add_message(1, std::string("\x08\x01")); }));
                })};
              }),
              unsupported, "declares no shape");
  CHECK_ERROR(with([](ModelText& m) {
                m.nodes = {node("Relu", {"x"}, {"y"}, "relu", [](pbf_writer& n) {
                  for (int i = 0; i < 2; ++i) attribute(n, "a", 2, [](pbf_writer& a) { a.add_int64(3, 1); });
                })};
              }),
              invalid_model, "'a' occurs twice");
}

TEST_CASE("load_onnx/sparse_initializers_and_names_of_graphs") {
  const std::string model = message([](pbf_writer& writer) {
    writer.add_int64(1, 8);
    pbf_writer graph(writer, 7);
    graph.add_message(12, port("y", f32, {1}));
    graph.add_message(15, message([](pbf_writer& sparse) {
                        sparse.add_message(1, tensor("values", f32, {1}));
                        sparse.add_message(2, tensor("indices", i64, {1}));
                      }));
  });
  const std::string text = error_of([&] { load_onnx(bytes_of(model), nullptr, {}, "test"); }).what();
  CHECK_MESSAGE(contains(text, "initializer 'values': sparse tensors are not supported"), text);
  const std::string named = message([](pbf_writer& writer) {
    pbf_writer graph(writer, 7);
    graph.add_string(2, "two\nlines");
  });
  CHECK_ERROR(load_onnx(bytes_of(named), nullptr, {}, "test"), invalid_model, "the name of the graph holds a control");
}

TEST_CASE("load_onnx/inputs_that_nothing_reads_may_be_what_no_tensor_is") {
  const auto with = [](const std::string& type) {
    ModelText text = relu_model();
    text.inputs.insert(text.inputs.begin(), message([&](pbf_writer& w) {
                         w.add_string(1, "label");
                         w.add_message(2, type);
                       }));
    return load(text);
  };
  const auto field = [](int number, const std::string& body) {
    return message([&](pbf_writer& w) { w.add_message(static_cast<protozero::pbf_tag_type>(number), body); });
  };
  const std::string strings = "\x08\x08", floats = "\x08\x01";
  // Strings, a sequence, neither: not listed.
  for (const std::string& type : {field(1, strings), field(4, field(1, field(1, floats))), std::string()}) {
    const Graph graph = with(type);
    REQUIRE(graph.input_ports.size() == 1);
    CHECK(graph.input_ports[0].name == "x");
  }
  const Graph graph = with(field(1, floats));
  REQUIRE(graph.input_ports.size() == 2);
  CHECK(graph.input_ports[0].name == "label");
  CHECK(graph.input_ports[0].dims.empty());
}

namespace {

std::string branch(const std::vector<std::string>& nodes, const std::vector<std::string>& outputs,
                   const std::vector<std::string>& initializers = {}) {
  return message([&](pbf_writer& graph) {
    for (const auto& part : nodes) graph.add_message(1, part);
    graph.add_string(2, "branch");
    for (const auto& part : initializers) graph.add_message(5, part);
    for (const auto& name : outputs) graph.add_message(12, message([&](pbf_writer& w) { w.add_string(1, name); }));
  });
}

std::string if_node(const std::string& then_branch, const std::string& else_branch,
                    const std::vector<std::string>& inputs = {"c"}) {
  return node("If", inputs, {"y"}, "choice", [&](pbf_writer& writer) {
    attribute(writer, "then_branch", 5, [&](pbf_writer& value) { value.add_message(6, then_branch); });
    attribute(writer, "else_branch", 5, [&](pbf_writer& value) { value.add_message(6, else_branch); });
  });
}

// x -> Neg -> n; y = c ? Relu(n) : n
ModelText if_model() {
  ModelText model = relu_model();
  model.initializers = {raw_tensor<std::uint8_t>("c", boolean, {}, {1})};
  // The branch reads the output of a later node in the file.
  model.nodes = {if_node(branch({node("Relu", {"n"}, {"r"})}, {"r"}), branch({}, {"n"})),
                 node("Neg", {"x"}, {"n"}, "neg")};
  return model;
}

}  // namespace

TEST_CASE("load_onnx/branches") {
  ModelText model = if_model();
  Graph graph = load(model);
  CHECK(node_names(graph) == Names{"neg", "choice"});
  bind_inputs(graph, 1, {});
  infer_shapes(graph);
  CHECK(node_names(graph) == Names{"neg", "choice/Relu_0", "choice/output0"});
  CHECK(graph.value(graph.outputs[0]).shape == Shape{2, 3});

  model.initializers = {raw_tensor<std::uint8_t>("c", boolean, {}, {0})};
  graph = load(model);
  bind_inputs(graph, 1, {});
  infer_shapes(graph);
  CHECK(node_names(graph) == Names{"neg", "choice/output0"});

  // Operators of the branch that is not taken need not be supported.
  model.nodes[0] = if_node(branch({node("Sorcery", {"n"}, {"r"})}, {"r"}), branch({}, {"n"}));
  graph = load(model);
  bind_inputs(graph, 1, {});
  CHECK_NOTHROW(infer_shapes(graph));
  model.initializers = {raw_tensor<std::uint8_t>("c", boolean, {}, {1})};
  graph = load(model);
  bind_inputs(graph, 1, {});
  CHECK_ERROR(infer_shapes(graph), unsupported, "node choice (If)");
}

TEST_CASE("load_onnx/branches_nested_with_values_of_their_own") {
  ModelText model = if_model();
  const std::string inner = if_node(
      branch({node("Add", {"n", "w"}, {"s"})}, {"s"}, {raw_tensor<float>("w", f32, {1}, {7})}), branch({}, {"n"}));
  model.nodes[0] = if_node(branch({inner, node("Relu", {"y"}, {"r"})}, {"r"}), branch({}, {"n"}));
  model.nodes[0] = node("If", {"c"}, {"out"}, "outer", [&](pbf_writer& writer) {
    attribute(writer, "then_branch", 5, [&](pbf_writer& value) {
      value.add_message(6, branch({inner, node("Relu", {"y"}, {"r"})}, {"r"}));
    });
    attribute(writer, "else_branch", 5, [&](pbf_writer& value) { value.add_message(6, branch({}, {"n"})); });
  });
  model.outputs = {port("out", f32, {2, 3})};
  Graph graph = load(model);
  bind_inputs(graph, 1, {});
  infer_shapes(graph);
  CHECK(node_names(graph) ==
        Names{"neg", "outer/choice/Add_0", "outer/choice/output0", "outer/Relu_1", "outer/output0"});
}

TEST_CASE("load_onnx/broken_branches") {
  const auto with_nodes = [](const std::string& then_branch) {
    ModelText model = if_model();
    model.nodes[0] = if_node(then_branch, branch({}, {"n"}));
    return load(model);
  };
  CHECK_ERROR(with_nodes(branch({}, {"nowhere"})), invalid_model, "nothing defines");
  CHECK_ERROR(with_nodes(branch({}, {"n", "n"})), invalid_model, "has 2 outputs");
  CHECK_ERROR(with_nodes(message([](pbf_writer& graph) { graph.add_message(11, port("z", f32, {1})); })), invalid_model,
              "a graph with inputs");
  CHECK_ERROR(with_nodes("\x0a\xff"), invalid_model, "readable");
  ModelText model = if_model();
  for (const std::string& then_branch : {branch({node("Relu", {"n"}, {"r"})}, {"r"}), branch({}, {"n"})})
    for (const std::vector<std::string>& inputs : {Names{}, Names{""}}) {
      model.nodes[0] = if_node(then_branch, branch({}, {"n"}), inputs);
      CHECK_ERROR(load(model), invalid_model, "input 0 (cond) is left out");
    }
  model.nodes[0] = if_node(branch({}, {"k"}, {raw_tensor<float>("k", f32, {1}, {7})}),
                           branch({}, {"k"}, {raw_tensor<float>("k", f32, {1}, {8})}), {});
  CHECK_ERROR(load(model), invalid_model, "input 0 (cond) is left out");
  model = if_model();
  model.nodes[0] = node("If", {"c"}, {"y"}, "choice");
  CHECK_ERROR(load(model), invalid_model, "'then_branch' holds no graph");
  model = if_model();
  model.initializers = {raw_tensor<float>("c", f32, {}, {1})};
  Graph graph = load(model);
  bind_inputs(graph, 1, {});
  CHECK_ERROR(infer_shapes(graph), invalid_model, "cond must be one bool");
}

TEST_CASE("load_onnx/an_input_with_a_value_is_overridden") {
  ModelText text = relu_model();
  text.inputs.push_back(port("w", f32, {3}));
  text.initializers = {raw_tensor<float>("w", f32, {3}, {1, -2, 3}), raw_tensor<float>("c", f32, {3}, {1, 1, 1})};
  text.nodes = {node("Mul", {"w", "c"}, {"factor"}), node("Add", {"x", "factor"}, {"y"})};
  const std::string bytes = text.bytes();
  CHECK(Model::load_bytes(bytes_of(bytes)).inputs().size() == 1);
  LoadOptions options;
  options.overridden = {"w"};
  const Model model = Model::load_bytes(bytes_of(bytes), options);
  REQUIRE(model.inputs().size() == 2);
  CHECK(model.inputs()[1].name == "w");
  Tensor x(DType::f32, {2, 3});
  std::fill(x.values<float>().begin(), x.values<float>().end(), 10.0F);
  Runner runner(model);
  const auto y = runner.run(std::vector<Tensor>{x, Tensor::of<float>({3}, {5, 6, 7})})[0].values<float>();
  CHECK(std::vector<float>(y.begin(), y.end()) == std::vector<float>{15, 16, 17, 15, 16, 17});
  for (const char* name : {"x", "c", "none"}) {
    options.overridden = {name};
    CHECK_ERROR(Model::load_bytes(bytes_of(bytes), options), invalid_argument, "is no input that has");
  }
}

TEST_CASE("load_onnx/until_opset_6_a_node_may_say_what_it_consumes") {
  for (const std::int64_t opset : {5, 6}) {
    ModelText model = relu_model();
    model.opsets[0].second = opset;
    model.nodes = {node("Flatten", {"x"}, {"y"}, "flat", [](pbf_writer& n) {
      attribute(n, "consumed_inputs", 7, [](pbf_writer& a) { a.add_int64(8, 0); });
    })};
    if (opset < 6)
      CHECK_NOTHROW(load(model));
    else
      CHECK_ERROR(load(model), unsupported, "'consumed_inputs'");
  }
}

TEST_CASE("load_onnx/versions") {
  const auto with = [](auto change) {
    ModelText model = relu_model();
    change(model);
    return load(model);
  };
  CHECK_ERROR(with([](ModelText& m) { m.ir_version = 0; }), invalid_model, "IR version 0");
  CHECK_ERROR(with([](ModelText& m) { m.ir_version = 1; }), unsupported, "IR version 1");
  CHECK_ERROR(with([](ModelText& m) { m.ir_version = 2; }), unsupported, "IR version 2");
  CHECK_ERROR(with([](ModelText& m) { m.ir_version = 15; }), unsupported, "IR version 15");
  CHECK_ERROR(with([](ModelText& m) { m.ir_version = 99; }), unsupported, "IR version 99");
  for (const std::int64_t ir : {3, 14}) CHECK_NOTHROW(with([&](ModelText& m) { m.ir_version = ir; }));
  for (const std::int64_t opset : {1, 5, 7, 13, 22, 28})
    CHECK_NOTHROW(with([&](ModelText& m) { m.opsets = {{"", opset}}; }));
  CHECK_ERROR(with([](ModelText& m) {
                m.opsets = {{"", 29}};
              }),
              unsupported, "opset 29 of ai.onnx; supported are 1 to 28");
  // Nodes from before opset 7 are read as of 7; Expand is from 8.
  for (const std::int64_t opset : {5, 7, 8}) {
    const auto expand = [&](ModelText& m) {
      m.opsets = {{"", opset}};
      m.initializers = {raw_tensor<std::int64_t>("shape", i64, {2}, {2, 3})};
      m.nodes = {node("Expand", {"x", "shape"}, {"y"})};
    };
    if (opset < 8)
      CHECK_ERROR(with(expand), unsupported, "the operator is supported from opset 8 on");
    else
      CHECK_NOTHROW(with(expand));
  }
  CHECK_ERROR(with([](ModelText& m) { m.opsets = {{"", 0}}; }), invalid_model, "imports version 0");
  CHECK_ERROR(with([](ModelText& m) { m.opsets = {}; }), invalid_model, "imports no opset of ai.onnx");
  CHECK_ERROR(with([](ModelText& m) { m.opsets = {{"", 12}, {"ai.onnx", 13}}; }), invalid_model, "versions 12 and 13");
  CHECK_NOTHROW(with([](ModelText& m) { m.opsets = {{"ai.onnx", 13}, {"", 13}, {"com.microsoft", 1}}; }));
  CHECK_ERROR(with([](ModelText& m) {
                m.nodes = {node("Relu", {"x"}, {"y"}, "r", [](pbf_writer& n) { n.add_string(7, "lenslet"); })};
                m.opsets.emplace_back("lenslet", 1);
              }),
              unsupported, "not supported");
}
