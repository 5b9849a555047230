// Selection of the weights that are prefetched into L2.

#include "runtime/exec/early_weights.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec/plan.h"
#include "small_net.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

constexpr std::size_t mb = 1'000'000;

DeviceProfile device() {
  DeviceProfile profile;
  profile.kind = DeviceKind::cuda;
  profile.clusters = true;
  profile.l2_bytes = 50 * mb;
  return profile;
}

/// Like VGG-16 in fp16: convolutions, some of which wait, a pool without weights, and fully connected layers.
const std::vector<StepWeights> steps{{.bytes = 1},
                                     {.bytes = 5 * mb, .waits = true},
                                     {},
                                     {.bytes = 5 * mb, .waits = true},
                                     {.bytes = 3 * mb, .waits = true},
                                     {.bytes = 205 * mb},
                                     {.bytes = 4 * mb},
                                     {},
                                     {.bytes = 205 * mb, .product = true},
                                     {.bytes = 60 * mb, .product = true},
                                     {.bytes = 8 * mb, .product = true}};

}  // namespace

TEST_CASE("exec/early_weights/of_kernels_that_wait_and_of_large_products") {
  const std::vector<EarlyWeights> found = early_weights(steps, 492 * mb, device());
  REQUIRE(found.size() == 2);
  // Not those of step 1, which would be at the graph's root, nor those of step 4, which are few.
  CHECK(found[0].step == 3);
  CHECK(found[0].behind == 0);
  CHECK(found[0].beside == 1);
  CHECK(found[0].bytes == 5 * mb);
  // Half of L2. Not weights of a step that is no product, nor the second product's, which would be evicted before use,
  // nor those that fit L2.
  CHECK(found[1].step == 8);
  CHECK(found[1].behind == 5);
  CHECK(found[1].beside == 6);
  CHECK(found[1].bytes == 25 * mb);
}

TEST_CASE("exec/early_weights/none_at_the_root") {
  const std::vector<StepWeights> first{{.bytes = 1}, {.bytes = 205 * mb, .product = true}};
  CHECK(early_weights(first, 205 * mb, device()).empty());
}

// What the rule accepts at its bound, and rejects beyond it.
TEST_CASE("exec/early_weights/at_the_bounds") {
  struct Row {
    StepWeights last;
    std::size_t beside, weights;
    bool early;
  };
  const Row rows[] = {{{.bytes = 4 * mb, .waits = true}, 1, 101 * mb, true},
                      {{.bytes = 4 * mb - 1, .waits = true}, 1, 101 * mb, false},
                      {{.bytes = 4 * mb}, 1, 101 * mb, false},
                      {{.bytes = 50 * mb, .product = true}, 1, 101 * mb, false},
                      {{.bytes = 50 * mb + 1, .product = true}, 1, 101 * mb, true},
                      {{.bytes = 60 * mb, .product = true}, 50 * mb, 101 * mb, true},
                      {{.bytes = 60 * mb, .product = true}, 50 * mb + 1, 101 * mb, false},
                      {{.bytes = 60 * mb, .product = true}, 1, 100 * mb + 1, true},
                      {{.bytes = 60 * mb, .product = true}, 1, 100 * mb, false}};
  for (const Row& row : rows) {
    CAPTURE(row.last.bytes);
    CAPTURE(row.beside);
    const std::vector<StepWeights> three{{.bytes = 1}, {.bytes = row.beside}, row.last};
    CHECK(early_weights(three, row.weights, device()).size() == (row.early ? 1 : 0));
  }
}

// Weights are read by a step and written by none: packed weights, else the largest constant. Renaming steps have none.
TEST_CASE("exec/early_weights/of_a_plan") {
  Graph graph;
  const ValueId x = add_input(graph, {8, 6, 6});
  const ValueId mean = add_weights(graph, "mean", {6, 6}, 1, 1), scale = add_weights(graph, "scale", {8, 6, 6}, 1, 2);
  const ValueId filter = add_weights(graph, "filter", {4, 8, 3, 3}, 1, 3);
  const ValueId y = add_node(graph, "Mul", {add_node(graph, "Floor", {add_node(graph, "Sub", {x, mean})}), scale});
  const ValueId both = add_node(graph, "Where", {add_node(graph, "Less", {x, mean}), mean, scale});
  const ValueId flat = add_node(graph, "Flatten", {add_node(graph, "Conv", {y, filter})});
  add_output(graph, add_node(graph, "Gemm", {flat, add_weights(graph, "matrix", {64, 5}, 1, 4)}));
  add_output(graph, add_node(graph, "MatMul", {flat, add_weights(graph, "other", {64, 3}, 1, 5)}));
  add_output(graph, both);
  std::shared_ptr<ThreadPool> pool;
  Plan plan = *make_plan(*make_model(graph).impl(), on_cpu(1, 1), pool);
  const auto step = [&](std::string_view type) {
    const auto of_type = [&](const PlanStep& one) { return plan.graph.node(one.node).type() == type; };
    return static_cast<std::size_t>(std::ranges::find_if(plan.steps, of_type) - plan.steps.begin());
  };
  Node& compares = plan.graph.node(plan.steps.at(step("Less")).node);
  Choice waits = *compares.choice;
  waits.candidate.waits_for_weights = true;
  compares.choice = std::make_shared<const Choice>(waits);
  const std::vector<StepWeights> found = plan.step_weights();
  REQUIRE(found.size() == plan.steps.size());
  CHECK(found[step("Sub")].bytes == 4 * 36);
  CHECK(found[step("Mul")].bytes == 4 * 288);
  CHECK(found[step("Where")].bytes == 4 * 288);
  CHECK(found[step("Conv")].bytes == plan.steps[step("Conv")].blob_bytes);
  CHECK(found[step("Conv")].bytes >= 4 * 288);
  CHECK(found[step("Flatten")].bytes == 0);
  CHECK(found[step("LayoutConvert")].bytes == 0);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].product == (i == step("Gemm") || i == step("MatMul")));
    CHECK(found[i].waits == (i == step("Less")));
  }
  CHECK((plan.read_constants() == std::vector<ValueId>{mean, scale}));  // each once; weights are packed
}

TEST_CASE("exec/early_weights/steps_say_so") {
  std::vector<StepInfo> said(3);
  said[0].name = "first";
  said[1].name = "second";
  said[2].reason = "forced";
  describe_early_weights(std::vector<EarlyWeights>{{1, 0, 0, 25 * mb}, {2, 0, 1, 4'260'000}}, said);
  CHECK(said[0].reason.empty());
  CHECK(said[1].reason == "25.0 MB of its weights come to L2 while first runs");
  CHECK(said[2].reason == "forced; 4.3 MB of its weights come to L2 while second runs");
}

TEST_CASE("exec/early_weights/none_where_weights_stay_in_L2_or_nothing_was_measured") {
  CHECK(early_weights(steps, 100 * mb, device()).empty());
  DeviceProfile older = device();
  older.clusters = false;
  CHECK(early_weights(steps, 492 * mb, older).empty());
  CHECK(early_weights(steps, 492 * mb, DeviceProfile()).empty());
  CHECK(early_weights({}, 492 * mb, device()).empty());
}
