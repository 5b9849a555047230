// Placement: values alive together never overlap, dead ones are reused, renamings cost nothing.

#include <doctest/doctest.h>

#include <atomic>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "runtime/exec/place.h"
#include "small_net.h"

namespace lenslet::test {
namespace {

void check_no_overlap(const PlanInfo& plan) {
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    const PlacementInfo& a = plan.placements[i];
    CHECK(a.offset % 64 == 0);
    CHECK(a.offset + a.bytes <= plan.memory.peak_bytes);
    for (std::size_t j = i + 1; j < plan.placements.size(); ++j) {
      const PlacementInfo& b = plan.placements[j];
      const bool together = a.first_step <= b.last_step && b.first_step <= a.last_step;
      const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      if (together && overlap) FAIL_CHECK(a.value << " overlaps " << b.value);
    }
  }
}

TEST_CASE("exec/place/no_overlap_and_no_less_than_the_bound") {
  const Model model = make_model(small_net());
  for (const std::int64_t batch : {1, 2, 7}) {
    PlanOptions options;
    options.batch = batch;
    const PlanInfo plan = model.plan(options);
    check_no_overlap(plan);
    CHECK(plan.memory.peak_bytes >= plan.memory.lower_bound_bytes);
    CHECK(plan.memory.activation_bytes <= plan.memory.activation_sum_bytes);
  }
  CHECK(model.memory(7).activation_bytes > model.memory(1).activation_bytes);
}

TEST_CASE("exec/place/a_chain_of_elementwise_ops_runs_in_place") {
  Graph graph;
  graph.name = "chain";
  ValueId value = add_input(graph, {4, 4, 4});
  for (int i = 0; i < 5; ++i) value = add_node(graph, "Abs", {value});
  add_output(graph, value);
  const Model model = make_model(std::move(graph));
  CHECK(model.memory(1).activation_bytes == 4 * 4 * 4 * sizeof(float));
}

TEST_CASE("exec/place/a_value_read_again_is_not_overwritten") {
  Graph graph;
  graph.name = "reread";
  const ValueId x = add_input(graph, {4, 4, 4});
  const ValueId abs = add_node(graph, "Abs", {x});
  const ValueId negative = add_node(graph, "Neg", {abs});
  add_output(graph, add_node(graph, "Sub", {abs, negative}));
  const Model model = make_model(std::move(graph));
  Runner runner(model);
  const Tensor input = random_tensor({1, 4, 4, 4}, 9);
  const Tensor output = runner.run(input)[0].clone();
  for (std::size_t i = 0; i < 64; ++i) {
    const float a = std::abs(input.values<float>()[i]);
    CHECK(output.values<float>()[i] == a + a);
  }
}

TEST_CASE("exec/place/a_graph_output_that_is_read_on_survives") {
  Graph graph;
  graph.name = "tapped";
  const ValueId x = add_input(graph, {4, 4, 4});
  const ValueId abs = add_node(graph, "Abs", {x});
  add_output(graph, abs);
  add_output(graph, add_node(graph, "Neg", {abs}));
  const Model model = make_model(std::move(graph));
  Runner runner(model);
  const Tensor input = random_tensor({1, 4, 4, 4}, 9);
  const auto outputs = runner.run(input);
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(outputs[0].values<float>()[i] == std::abs(input.values<float>()[i]));
    CHECK(outputs[1].values<float>()[i] == -std::abs(input.values<float>()[i]));
  }
}

// Identity with preparation: counts how often weights are transformed.
std::atomic<int> preparations{0};

class CountingOp final : public Op {
 public:
  std::string_view type() const override { return "Counting"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override { return {inputs[0].type}; }
  std::string prepare_key(const PlanContext&) const override { return "doubled"; }
  std::shared_ptr<const void> prepare(const PlanContext& context, std::size_t& bytes) const override {
    ++preparations;
    bytes = sizeof(float);
    return std::make_shared<float>(2 * context.inputs[1].constant->values<float>()[0]);
  }
  void run_cpu(const RunContext& context) const override {
    const float factor = *static_cast<const float*>(context.prepared);
    if (factor > 1e6F) throw Error(ErrorKind::internal, "too much");
    const auto from = context.inputs[0].values<float>();
    const auto to = context.outputs[0].values<float>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = factor * from[i];
  }
};

TEST_CASE("exec/plan/weights_are_prepared_once_for_all_runners") {
  Graph graph;
  graph.name = "counting";
  const ValueId x = add_input(graph, {4});
  const ValueId w = graph.add_constant("w", Tensor::of<float>({1}, {3.0F}));
  add_output(graph, add_node(graph, std::make_shared<CountingOp>(), "count", {x, w}));
  const Model model = make_model(std::move(graph));
  preparations = 0;
  for (const std::int64_t batch : {1, 2, 5}) {
    PlanOptions options;
    options.batch = batch;
    Runner runner(model, options);
    Tensor input = random_tensor({batch, 4}, 1);
    CHECK(runner.run(input)[0].values<float>()[0] == 6.0F * input.values<float>()[0]);
  }
  CHECK(preparations.load() == 1);
}

TEST_CASE("exec/runner/an_error_in_a_kernel_names_model_and_node") {
  Graph graph;
  graph.name = "failing";
  const ValueId x = add_input(graph, {4});
  const ValueId w = graph.add_constant("w", Tensor::of<float>({1}, {1e9F}));
  add_output(graph, add_node(graph, std::make_shared<CountingOp>(), "guilty", {x, w}));
  const Model model = make_model(std::move(graph));
  Runner runner(model);
  try {
    runner.run(random_tensor({1, 4}, 1));
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "failing: node guilty (Counting): too much");
  }
}

}  // namespace
}  // namespace lenslet::test
