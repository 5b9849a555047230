// GraphEdit keeps producers and uses correct while nodes change.
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "graph_builder.h"
#include "runtime/passes/edit.h"

using namespace lenslet;
using namespace lenslet::test;

TEST_CASE("edit/what_an_erased_node_made_has_no_producer") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4}), first = b.node("Abs", {x}), second = b.node("Neg", {first});
  b.output(second);
  Graph graph = b.build();
  GraphEdit edit(graph);
  CHECK(edit.producer(first) == 0);
  edit.erase(0);
  CHECK(edit.erased(0));
  CHECK(edit.producer(first) == no_id);
  CHECK(edit.uses(x) == 0);
  CHECK(edit.producer(second) == 1);
  CHECK(graph.node(0).inputs.empty());
  CHECK(graph.node(0).outputs.empty());
}

TEST_CASE("edit/what_another_node_makes_now_is_still_its") {
  GraphBuilder b;
  const ValueId first = b.node("Abs", {b.input("x", {1, 4})}), second = b.node("Neg", {first});
  b.output(second);
  Graph graph = b.build();
  GraphEdit edit(graph);
  edit.set_outputs(0, {second});
  edit.erase(1);
  CHECK(edit.producer(second) == 0);
  CHECK(edit.producer(first) == no_id);
  CHECK(edit.uses(first) == 0);
}

TEST_CASE("edit/an_input_that_is_not_there_is_made_by_nothing") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4}), clip = b.node("Clip", {x, no_id, b.scalar(6)});
  b.output(clip);
  Graph graph = b.build();
  const GraphEdit edit(graph);
  CHECK(input_of(graph.node(0), 0) == x);
  for (const std::size_t i : {std::size_t{1}, std::size_t{3}, std::size_t(-1)})
    CHECK(input_of(graph.node(0), i) == no_id);
  CHECK(edit.producer(no_id) == no_id);
  CHECK(edit.producer_node(no_id) == nullptr);
  CHECK_FALSE(edit.merges(no_id));
}

TEST_CASE("graph/a_dump_shows_short_integers_and_chosen_kernels") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3});
  b.output(b.node("Mul", {b.constant(Tensor::of<std::int32_t>(Shape{2, 1}, {7, -8})),
                          b.node("Cast", {x}, {{"to", std::int64_t{6}}})}));
  CHECK(b.build().dump().find(" {7,-8}") != std::string::npos);

  struct Row {
    std::size_t candidates;
    const char* config;
    const char* shown;
  };
  const Kernel* const kernel = kernels_of("Conv", DeviceKind::cpu).front();
  const std::string by = " by " + std::string(kernel->name());
  for (const Row& row : {Row{1, "", ""}, {1, "tiles=49", " (tiles=49)"}, {2, "", ""}, {2, "tiles=49", " (tiles=49)"}}) {
    Graph graph = b.build();
    Choice choice{.kernel = kernel};
    choice.candidate.config = row.config;
    choice.rows.resize(row.candidates);
    graph.nodes.back().choice = std::make_shared<const Choice>(choice);
    const std::string dump = graph.dump();
    CAPTURE(dump);
    CHECK((dump.find(by + row.shown) != std::string::npos) == (row.candidates > 1 || *row.config != 0));
  }
}
