// CheckedPasses: the types that a pass declares must be those that the operators produce.
#include "runtime/passes/checked_passes.h"

#include <doctest/doctest.h>

#include <string>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

/// x [2,8,6,5] -> Conv_0 -> Transpose_1 to [2,6,5,4] -> Relu_2 -> y.
Graph small_graph() {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 8, 6, 5});
  const ValueId last = b.node("Transpose", {b.conv(x, 8, 4, 1)}, {{"perm", std::vector<std::int64_t>{0, 2, 3, 1}}});
  b.output(b.node("Relu", {last}));
  return b.build();
}

Value& result_of(Graph& graph, std::string_view op) { return graph.value(only(graph, op).outputs[0]); }

/// The message about such a pass.
std::string said_of(void (*wrong)(Graph& graph, const PassContext& context)) {
  Graph graph = small_graph();
  const PassContext context = pass_context();
  CheckedPasses checked(graph, context);
  try {
    checked.run({"planted", wrong, true, ""});
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::internal);
    return error.what();
  }
  return {};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("checked_passes/a_shape_that_is_not_what_the_operator_makes") {
  const std::string said = said_of([](Graph& graph, const PassContext&) {
    result_of(graph, "Transpose").shape = {2, 5, 6, 4};
  });
  INFO(said);
  for (const std::string part : {"pass planted: ", "(Transpose)", "float32 [2,5,6,4]", "float32 [2,6,5,4]"})
    CHECK(has(said, part));
}

TEST_CASE("checked_passes/an_element_type_that_is_not_what_the_operator_makes") {
  const std::string said =
      said_of([](Graph& graph, const PassContext&) { result_of(graph, "Conv").dtype = DType::i32; });
  INFO(said);
  for (const std::string part : {"pass planted: ", "(Conv)", "int32 [2,4,6,5]", "float32 [2,4,6,5]"})
    CHECK(has(said, part));
}

// As cancel_transposes once did to a MatMul: node and result are new, and neither matches the original.
TEST_CASE("checked_passes/a_node_on_other_inputs") {
  const std::string said = said_of([](Graph& graph, const PassContext&) {
    for (Node& node : graph.nodes)
      if (node.type() == "Relu") node.inputs = {only(graph, "Conv").outputs[0]};
  });
  INFO(said);
  for (const std::string part : {"pass planted: ", "(Relu)", "[2,6,5,4]", "[2,4,6,5]"}) CHECK(has(said, part));
}

TEST_CASE("checked_passes/an_operator_that_does_not_take_its_inputs") {
  const std::string said = said_of([](Graph& graph, const PassContext&) {
    for (Node& node : graph.nodes)
      if (node.type() == "Relu")
        node.op = make_normalised_op("Transpose", {{"perm", std::vector<std::int64_t>{1, 0}}}, 1);
  });
  INFO(said);
  CHECK(has(said, "pass planted: "));
  CHECK(has(said, "(Transpose)"));
}

// The nodes agree with each other, but the network's output has changed.
TEST_CASE("checked_passes/an_output_of_another_type") {
  const std::string said =
      said_of([](Graph& graph, const PassContext&) { graph.outputs = {only(graph, "Conv").outputs[0]}; });
  INFO(said);
  for (const std::string part : {"pass planted: output ", "[2,4,6,5]", "[2,6,5,4]"}) CHECK(has(said, part));
}

TEST_CASE("checked_passes/what_was_there_before_is_not_judged") {
  Graph graph = small_graph();
  result_of(graph, "Transpose").shape = {2, 5, 6, 4};
  const PassContext context = pass_context();
  CheckedPasses checked(graph, context);
  CHECK_NOTHROW(checked.run({"idle", [](Graph&, const PassContext&) {}, true, ""}));
}

TEST_CASE("checked_passes/what_a_pass_leaves_alone_or_does_right") {
  CHECK(said_of([](Graph&, const PassContext&) {}).empty());
  for (const Pass& pass : passes().subspan(passes_before_inference))
    if (pass.name == "fold_constants" || pass.name == "cancel_transposes" || pass.name == "fuse_activation")
      CHECK(said_of(pass.run).empty());
}
