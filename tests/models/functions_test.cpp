// Functions of a model file replace the nodes that call them.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "models/limits.h"
#include "models/load_onnx.h"
#include "runtime/graph/infer_shapes.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Names = std::vector<std::string>;

Graph load(const ModelText& model) {
  const std::string data = model.bytes();
  Graph graph = load_onnx(bytes_of(data), nullptr, {}, "test");
  graph.check();
  return graph;
}

// One "name Op(inputs) -> outputs" for each node.
Names lines(const Graph& graph) {
  Names all;
  for (const Node& node : graph.nodes) {
    std::string line = fmt::format("{} {}(", node.name, node.type());
    for (const ValueId id : node.inputs) line += (line.back() == '(' ? "" : ",") + graph.value(id).name;
    line += ") -> ";
    for (const ValueId id : node.outputs) line += graph.value(id).name;
    all.push_back(line);
  }
  return all;
}

// x -> block -> y with the opset of its domain.
ModelText calling(const std::vector<std::string>& functions, const std::string& call) {
  ModelText model = relu_model();
  model.opsets.emplace_back("acme", 1);
  model.functions = functions;
  model.nodes = {call};
  return model;
}

std::string call(const std::string& op, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                 const std::string& name = "block", const std::function<void(pbf_writer&)>& more = {}) {
  return node(op, inputs, outputs, name, [&](pbf_writer& writer) {
    writer.add_string(7, "acme");
    if (more) more(writer);
  });
}

}  // namespace

TEST_CASE("functions/nodes_in_place_of_the_call") {
  const std::string twice =
      function("acme", "Twice", {"a"}, {"b"}, {node("Relu", {"a"}, {"t"}), node("Neg", {"t"}, {"b"}, "neg")});
  CHECK(lines(load(calling({twice}, call("Twice", {"x"}, {"y"})))) ==
        Names{"block/Relu_0 Relu(x) -> block/t", "block/neg Neg(block/t) -> y"});
  // A call without a name, and two calls side by side.
  ModelText model = calling({twice}, call("Twice", {"x"}, {"m"}, ""));
  model.nodes.push_back(call("Twice", {"m"}, {"y"}, ""));
  CHECK(lines(load(model)) == Names{"Twice_0/Relu_0 Relu(x) -> Twice_0/t", "Twice_0/neg Neg(Twice_0/t) -> m",
                                    "Twice_1/Relu_0 Relu(m) -> Twice_1/t", "Twice_1/neg Neg(Twice_1/t) -> y"});
}

// One name distinguished by `overload` (IR version 10), outside functions and within.
TEST_CASE("functions/overloads") {
  const auto overloaded = [](const char* overload, const char* op) {
    return function("acme", "One", {"a"}, {"b"}, {node(op, {"a"}, {"b"}, "n")},
                    [&](pbf_writer& writer) { writer.add_string(13, overload); });
  };
  const auto of = [](const char* overload) { return [=](pbf_writer& writer) { writer.add_string(8, overload); }; };
  const std::string outer = function("acme", "Outer", {"a"}, {"b"}, {call("One", {"a"}, {"b"}, "one", of("second"))});
  const std::vector<std::string> all{overloaded("first", "Neg"), overloaded("second", "Abs"), outer};
  CHECK(lines(load(calling(all, call("One", {"x"}, {"y"}, "block", of("first"))))) == Names{"block/n Neg(x) -> y"});
  CHECK(lines(load(calling(all, call("Outer", {"x"}, {"y"})))) == Names{"block/one/n Abs(x) -> y"});
}

TEST_CASE("functions/that_call_functions") {
  const std::string inner = function("acme", "Inner", {"a"}, {"b"}, {node("Neg", {"a"}, {"b"}, "neg")});
  const std::string outer = function("acme", "Outer", {"a"}, {"b"},
                                     {call("Inner", {"a"}, {"t"}, "first"), call("Inner", {"t"}, {"b"}, "second")});
  CHECK(lines(load(calling({outer, inner}, call("Outer", {"x"}, {"y"})))) ==
        Names{"block/first/neg Neg(x) -> block/t", "block/second/neg Neg(block/t) -> y"});
  const std::string endless = function("acme", "Endless", {"a"}, {"b"}, {call("Endless", {"a"}, {"b"}, "e")});
  std::string deep;
  for (int i = 0; i < limits::function_depth; ++i) deep += "/e";
  CHECK(std::string(error_of([&] { load(calling({endless}, call("Endless", {"x"}, {"y"}))); }).what()) ==
        fmt::format("node block (Endless): node block{} (Endless): functions that call functions, 64 deep", deep));
  // Each doubles the one before.
  std::vector<std::string> all{function("acme", "F0", {"a"}, {"b"}, {node("Neg", {"a"}, {"b"})})};
  for (int i = 1; i < 30; ++i) {
    const std::string before = fmt::format("F{}", i - 1);
    all.push_back(function("acme", fmt::format("F{}", i), {"a"}, {"b"},
                           {call(before, {"a"}, {"t"}, "p"), call(before, {"t"}, {"b"}, "q")}));
  }
  CHECK_ERROR(load(calling(all, call("F29", {"x"}, {"y"}))), limit, "nodes with functions in place");
}

TEST_CASE("functions/attributes_of_the_call") {
  const auto leaky = [](const std::function<void(pbf_writer&)>& more) {
    return function("acme", "Leaky", {"a"}, {"b"},
                    {node("LeakyRelu", {"a"}, {"b"}, "leaky",
                          [](pbf_writer& writer) {
                            attribute(writer, "alpha", 1, [](pbf_writer& a) { a.add_string(21, "slope"); });
                          })},
                    more);
  };
  const auto slope = [](pbf_writer& writer, int field, float value) {
    pbf_writer attribute(writer, static_cast<protozero::pbf_tag_type>(field));
    attribute.add_string(1, "slope");
    attribute.add_enum(20, 1);
    attribute.add_float(2, value);
  };
  const auto alpha = [&](const std::string& f, const std::function<void(pbf_writer&)>& given) {
    const Graph graph = load(calling({f}, call("Leaky", {"x"}, {"y"}, "block", given)));
    return attribute<double>(*graph.nodes.at(0).op, "alpha").value();
  };
  CHECK(alpha(leaky({}), [&](pbf_writer& w) { slope(w, 5, 0.5F); }) == 0.5);
  CHECK(alpha(leaky([&](pbf_writer& w) { slope(w, 11, 0.25F); }), {}) == 0.25);
  CHECK(alpha(leaky([&](pbf_writer& w) { slope(w, 11, 0.25F); }), [&](pbf_writer& w) { slope(w, 5, 0.5F); }) == 0.5);
  CHECK(alpha(leaky({}), {}) == doctest::Approx(0.01));  // the operator's own default
}

TEST_CASE("functions/parameters_left_out_and_handed_through") {
  const std::string clip = function("acme", "AtLeast", {"a", "low"}, {"b", "same", "unused"},
                                    {node("Clip", {"a", "low"}, {"b"}, "clip"), node("Neg", {"b"}, {"unused"}, "neg")});
  ModelText model = calling({clip}, call("AtLeast", {"x"}, {"y"}));
  CHECK(lines(load(model)) == Names{"block/clip Clip(x) -> y", "block/neg Neg(y) -> block/unused"});
  model.nodes = {call("AtLeast", {"x"}, {"y", "", "z"})};
  CHECK(lines(load(model)) == Names{"block/clip Clip(x) -> y", "block/neg Neg(y) -> z"});
  // An output that is an input.
  const std::string pass = function("acme", "Pass", {"a"}, {"a"}, {});
  CHECK(lines(load(calling({pass}, call("Pass", {"x"}, {"y"})))) == Names{"block/output0 Identity(x) -> y"});
  CHECK_ERROR(load(calling({pass}, call("Pass", {"x", "x"}, {"y"}))), invalid_model,
              "has 2 inputs; function Pass takes 1");
  CHECK_ERROR(load(calling({pass}, call("Pass", {"x"}, {"y", "z"}))), invalid_model, "has 2 outputs; function Pass");
  const std::string hollow = function("acme", "Hollow", {"a"}, {"b"}, {});
  CHECK_ERROR(load(calling({hollow}, call("Hollow", {"x"}, {"y"}))), invalid_model, "produced by no node");
}

TEST_CASE("functions/branches_within") {
  const auto branch = [](const std::string& op) {
    return message([&](pbf_writer& graph) {
      graph.add_message(1, node(op, {"t"}, {"r"}));
      graph.add_message(12, message([](pbf_writer& w) { w.add_string(1, "r"); }));
    });
  };
  const std::string chooses =
      function("acme", "Chooses", {"a", "c"}, {"b"},
               {node("Neg", {"a"}, {"t"}, "neg"), node("If", {"c"}, {"b"}, "if", [&](pbf_writer& w) {
                  attribute(w, "then_branch", 5, [&](pbf_writer& v) { v.add_message(6, branch("Relu")); });
                  attribute(w, "else_branch", 5, [&](pbf_writer& v) { v.add_message(6, branch("Abs")); });
                })});
  ModelText model = calling({chooses}, call("Chooses", {"x", "c"}, {"y"}));
  model.initializers = {raw_tensor<std::uint8_t>("c", 9, {}, {1})};
  CHECK(lines(load(model)) == Names{"block/neg Neg(x) -> block/t", "block/if If(c,block/t) -> y"});
  // A call within a branch.
  model.functions = {function("acme", "Twice", {"a"}, {"b"}, {node("Neg", {"a"}, {"t"}), node("Abs", {"t"}, {"b"})})};
  const std::string calls = message([&](pbf_writer& graph) {
    graph.add_message(1, call("Twice", {"x"}, {"r"}));
    graph.add_message(12, message([](pbf_writer& w) { w.add_string(1, "r"); }));
  });
  model.nodes = {node("If", {"c"}, {"y"}, "if", [&](pbf_writer& w) {
    for (const char* name : {"then_branch", "else_branch"})
      attribute(w, name, 5, [&](pbf_writer& v) { v.add_message(6, calls); });
  })};
  Graph graph = load(model);
  bind_inputs(graph, 1, {});
  infer_shapes(graph);
  REQUIRE(graph.nodes.size() == 3);  // and a node that passes the result on
  CHECK(graph.nodes[0].type() == "Neg");
  CHECK(graph.nodes[1].type() == "Abs");
}

TEST_CASE("functions/opsets_of_their_own") {
  // ReduceSum's axes are an attribute up to opset 12.
  const std::string old = message([](pbf_writer& writer) {
    writer.add_string(1, "Old");
    writer.add_string(4, "a");
    writer.add_string(5, "b");
    writer.add_message(7, node("ReduceSum", {"a"}, {"b"}, "sum", [](pbf_writer& n) {
                         attribute(n, "axes", 7, [](pbf_writer& a) { a.add_int64(8, 1); });
                       }));
    {
      pbf_writer import(writer, 9);
      import.add_string(1, "");
      import.add_int64(2, 11);
    }
    writer.add_string(10, "acme");
  });
  CHECK_NOTHROW(load(calling({old}, call("Old", {"x"}, {"y"}))));
}
