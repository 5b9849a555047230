// Placement: live values never overlap, dead ones are reused, renaming costs nothing.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "lenslet/device.h"
#include "lenslet/runner.h"
#include "runtime/exec/lower.h"
#include "runtime/exec/model_impl.h"
#include "runtime/exec/place.h"
#include "runtime/exec/plan.h"
#include "small_net.h"
#include "tests/tensors.h"

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

Graph lowered_for_cpu(const Graph& graph, const PlanOptions& options) {
  const DeviceChoice device = choose_device("cpu");
  return lower(*make_model(graph).impl(), options, device, profile_of(device, options)).graph;
}

TEST_CASE("exec/place/no_overlap_and_no_less_than_the_bound") {
  const Model model = make_model(small_net());
  for (const std::int64_t batch : {1, 2, 7}) {
    const PlanInfo plan = model.plan(on_cpu(batch));
    check_no_overlap(plan);
    CHECK(plan.memory.peak_bytes >= plan.memory.lower_bound_bytes);
    CHECK(plan.memory.lower_bound_bytes >= 3 * 17 * 19 * sizeof(float) * static_cast<std::size_t>(batch));  // the input
    CHECK(plan.memory.activation_bytes <= plan.memory.activation_sum_bytes);
  }
  CHECK(model.plan(on_cpu(7)).memory.activation_bytes > model.plan(on_cpu(1)).memory.activation_bytes);
}

TEST_CASE("exec/place/a_chain_of_elementwise_ops_runs_in_place") {
  Graph graph;
  graph.name = "chain";
  ValueId value = add_input(graph, {4, 4, 4});
  for (int i = 0; i < 5; ++i) value = add_node(graph, "Floor", {value});
  add_output(graph, value);
  const Model model = make_model(std::move(graph));
  CHECK(model.plan(on_cpu()).memory.activation_bytes == 4 * 4 * 4 * sizeof(float));
}

TEST_CASE("exec/place/kept_inputs_are_neither_overwritten_nor_reused") {
  Graph graph;
  graph.name = "chain";
  ValueId value = add_input(graph, {4, 4, 4});
  for (int i = 0; i < 5; ++i) value = add_node(graph, "Floor", {value});
  add_output(graph, value);
  const Graph lowered = lowered_for_cpu(graph, on_cpu());
  const std::vector<std::size_t> workspaces(lowered.nodes.size(), 0);
  const auto input = static_cast<std::size_t>(lowered.inputs[0]), output = static_cast<std::size_t>(lowered.outputs[0]);
  const Placement reused = place_values(lowered, workspaces, {});
  CHECK(reused.root[output] == static_cast<ValueId>(input));
  const Placement kept = place_values(lowered, workspaces, {.keep_inputs = true});
  CHECK(kept.root[input] == static_cast<ValueId>(input));
  CHECK(kept.root[output] != kept.root[input]);
  CHECK(kept.arena_bytes == 2 * reused.arena_bytes);
}

TEST_CASE("exec/place/all_values_are_kept_to_the_end") {
  const Graph lowered = lowered_for_cpu(small_net(), on_cpu(2));
  const std::vector<std::size_t> workspaces(lowered.nodes.size(), 0);
  const Placement kept = place_values(lowered, workspaces, {.keep_all = true});
  int blocks = 0;
  for (std::size_t v = 0; v < lowered.values.size(); ++v) {
    if (kept.first[v] < 0) continue;
    ++blocks;
    CHECK(kept.first[v] == 0);
    CHECK(kept.last[v] == static_cast<int>(lowered.nodes.size()));
  }
  CHECK(blocks > 3);
}

TEST_CASE("exec/place/a_renaming_of_what_was_overwritten_lies_there") {
  Graph graph;
  graph.name = "renamed";
  const ValueId x = add_input(graph, {4, 4, 4});
  const ValueId flat = add_node(graph, "Flatten", {add_node(graph, "Abs", {x})});  // Abs overwrites x
  add_output(graph, add_node(graph, "MatMul", {flat, add_weights(graph, "w", {64, 3}, 0.2F, 1)}));
  const Graph lowered = lowered_for_cpu(graph, on_cpu());
  const std::vector<std::size_t> workspaces(lowered.nodes.size(), 0);
  const Placement placement = place_values(lowered, workspaces, {});
  int renamed = 0;
  for (std::size_t n = 0; n < lowered.nodes.size(); ++n) {
    if (placement.runs[n]) continue;
    const auto from = static_cast<std::size_t>(lowered.nodes[n].inputs[0]),
               to = static_cast<std::size_t>(lowered.nodes[n].outputs[0]);
    ++renamed;
    CHECK(placement.root[to] == lowered.inputs[0]);
    CHECK(placement.offsets[to] != Placement::npos);
    CHECK(placement.offsets[to] == placement.offsets[from]);
  }
  CHECK(renamed == 1);
}

TEST_CASE("exec/place/blocks_and_workspaces_stand_on_the_alignment") {
  Graph graph = small_net();
  const Graph lowered = lowered_for_cpu(graph, on_cpu(3));
  std::vector<std::size_t> workspaces(lowered.nodes.size());
  for (std::size_t n = 0; n < workspaces.size(); ++n) workspaces[n] = 36 * n;
  const Placement placement = place_values(lowered, workspaces, {.alignment = cuda_arena_alignment});
  for (const std::size_t offset : placement.offsets)
    if (offset != Placement::npos) CHECK(offset % 256 == 0);
  for (const std::size_t offset : placement.workspace_offsets) CHECK(offset % 256 == 0);
  CHECK(placement.arena_bytes % 256 == 0);
}

TEST_CASE("exec/place/a_value_read_again_is_not_overwritten") {
  Graph graph;
  graph.name = "reread";
  const ValueId x = add_input(graph, {4, 4, 4});
  const ValueId abs = add_node(graph, "Abs", {x});
  const ValueId negative = add_node(graph, "Neg", {abs});
  add_output(graph, add_node(graph, "Sub", {abs, negative}));
  const Model model = make_model(std::move(graph));
  Runner runner(model, on_cpu());
  const Tensor input = random_tensor({1, 4, 4, 4}, 9);
  const Tensor output = runner.run(input)[0].clone();
  for (std::size_t i = 0; i < 64; ++i) {
    const float a = std::abs(input.values<float>()[i]);
    CHECK(output.values<float>()[i] == a + a);
  }
}

// Steps of a band run interleaved: none may overwrite what another one reads, and values live as long as the band.
TEST_CASE("exec/place/what_a_band_reads_is_not_overwritten_in_it") {
  Graph graph;
  graph.name = "band";
  const ValueId x = add_input(graph, {4, 4, 4});
  const ValueId floor = add_node(graph, "Floor", {x});
  const ValueId sign = add_node(graph, "Sign", {floor});
  const ValueId sum = add_node(graph, "Add", {floor, sign});
  add_output(graph, add_node(graph, "Ceil", {add_node(graph, "Round", {sum})}));
  Graph lowered = lowered_for_cpu(graph, on_cpu());
  REQUIRE(lowered.nodes.size() == 5);
  const auto value = [&](NodeId n) { return lowered.node(n).outputs[0]; };
  const auto at = [](ValueId id) { return static_cast<std::size_t>(id); };
  const std::vector<std::size_t> workspaces(5, 0);
  const Placement apart = place_values(lowered, workspaces, {});
  CHECK(apart.root[at(value(2))] == apart.root[at(value(0))]);
  CHECK(apart.first[at(apart.root[at(value(1))])] == 1);
  CHECK(apart.last[at(apart.root[at(value(1))])] == 2);
  for (const auto& nodes : {std::pair<NodeId, NodeId>{1, 2}, {0, 2}, {1, 3}, {2, 3}, {3, 4}, {0, 1}}) {
    const NodeId first = nodes.first, last = nodes.second;
    INFO(first, " to ", last);
    lowered.bands = {{.first = first, .last = last, .rows = 1, .strips = {}, .reason = {}}};
    const Placement placement = place_values(lowered, workspaces, {});
    const auto root = [&](NodeId n) { return placement.root[at(value(n))]; };
    const bool together = first <= 2 && last >= 2;  // beside Sign, which reads Floor as well, or with its successors
    CHECK((root(2) == root(0)) != together);
    CHECK((root(2) == root(1)) == (together && last == 2));
    if (!together) continue;
    CHECK(placement.first[at(root(1))] == std::min(first, 1));
    CHECK(placement.last[at(root(0))] == last);
  }
}

TEST_CASE("exec/place/a_first_output_that_nobody_names_has_a_place") {
  Graph graph;
  graph.name = "indices";
  const ValueId x = add_input(graph, {6});
  const ValueId k = graph.add_constant("k", Tensor::of<std::int64_t>(Shape{1}, {2}));
  Node node;
  node.name = "top";
  node.op = make_op("TopK", "", {}, 2, 2);
  node.inputs = {x, k};
  node.outputs = {no_id, graph.add_value("indices")};
  add_output(graph, node.outputs[1]);
  graph.nodes.push_back(std::move(node));
  Runner runner(make_model(std::move(graph)), on_cpu());
  const Tensor y = runner.run(Tensor::of<float>(Shape{1, 6}, {1, 5, 2, 7, 0, 3}))[0].clone();
  CHECK(y.values<std::int64_t>()[0] == 3);
  CHECK(y.values<std::int64_t>()[1] == 1);
}

TEST_CASE("exec/place/a_graph_output_that_is_read_on_survives") {
  Graph graph;
  graph.name = "tapped";
  const ValueId x = add_input(graph, {4, 4, 4});
  const ValueId abs = add_node(graph, "Abs", {x});
  add_output(graph, abs);
  add_output(graph, add_node(graph, "Neg", {abs}));
  const Model model = make_model(std::move(graph));
  Runner runner(model, on_cpu());
  const Tensor input = random_tensor({1, 4, 4, 4}, 9);
  const auto outputs = runner.run(input);
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(outputs[0].values<float>()[i] == std::abs(input.values<float>()[i]));
    CHECK(outputs[1].values<float>()[i] == -std::abs(input.values<float>()[i]));
  }
}

// A Concat of two branches; then one of its readers may overwrite it.
TEST_CASE("exec/place/parts_lie_in_their_whole") {
  using Integers = std::vector<std::int64_t>;
  Graph graph;
  graph.name = "branches";
  const ValueId x = add_input(graph, {16, 9, 11});
  const auto conv = [&](ValueId from, std::int64_t c, std::int64_t k, std::int64_t r) {
    const std::string name = "w" + std::to_string(graph.nodes.size());
    return add_node(graph, "Conv", {from, add_weights(graph, name, {k, c, r, r}, 0.2F, graph.nodes.size())},
                    {{"pads", Integers(4, r / 2)}});
  };
  const ValueId a = conv(x, 16, 32, 1), b = conv(x, 16, 16, 3);
  const ValueId both = add_node(graph, "Concat", {a, b}, {{"axis", std::int64_t{1}}});
  const ValueId means = add_node(graph, "GlobalAveragePool", {both});
  const ValueId over = add_node(graph, "HardSwish", {add_node(graph, "Mul", {both, means})});
  add_output(graph, conv(over, 48, 8, 1));
  const Model model = make_model(std::move(graph));
  PlanOptions apart = on_cpu(2);
  apart.disabled_passes = {"place_parts"};
  const PlanInfo plan = model.plan(on_cpu(2)), copied = model.plan(apart);
  check_no_overlap(plan);
  for (const StepInfo& step : plan.steps)
    if (step.op == "Concat") CHECK(step.bytes == 0);
  // The peak is a convolution's workspace on some instruction sets, so less cannot be promised.
  CHECK(plan.memory.peak_bytes <= copied.memory.peak_bytes);
  CHECK(plan.memory.activation_sum_bytes + 2 * 48 * 9 * 11 * sizeof(float) == copied.memory.activation_sum_bytes);
  const Tensor input = random_tensor({2, 16, 9, 11}, 3);
  for (const int threads : {1, 3}) {
    apart.threads = threads;
    Runner runner(model, on_cpu(2, threads)), other(model, apart);
    const Tensor expected = other.run(input)[0].clone();
    for (int again = 0; again < 3; ++again) CHECK(equal(runner.run(input)[0], expected));
    // An observer sees each part alone.
    int parts = 0;
    runner.set_observer([&](const LayerEvent& event) {
      if (event.outputs[0].format().pixel_pitch == 0) return;
      ++parts;
      CHECK(event.outputs[0].format().pixel_pitch == 48);
      CHECK(event.outputs[0].clone().to_format(formats::nchw).elems() == event.outputs[0].elems());
    });
    CHECK(equal(runner.run(input)[0], expected));
    CHECK(parts == 2);
  }
}

TEST_CASE("exec/place/a_part_is_neither_overwritten_nor_put_elsewhere") {
  Graph graph;
  graph.name = "part";
  const ValueId floor = add_node(graph, "Floor", {add_input(graph, {4, 4, 4})}),
                ceil = add_node(graph, "Ceil", {floor});
  add_output(graph, ceil);
  const auto placed = [&](ValueId part) {
    Graph lowered = lowered_for_cpu(graph, on_cpu());
    if (part != no_id) {
      Value whole = lowered.value(floor);
      whole.shape = whole.shape.with(1, 8);
      const ValueId id = lowered.add_value("whole");
      lowered.value(id) = whole;
      lowered.value(part).part = {.whole = id, .channel = 4};
    }
    return place_values(lowered, std::vector<std::size_t>(lowered.nodes.size()), {});
  };
  const auto at = [](ValueId id) { return static_cast<std::size_t>(id); };
  const Placement plain = placed(no_id);
  CHECK(plain.root[at(ceil)] == plain.root[at(floor)]);
  for (const ValueId part : {floor, ceil}) {
    const Placement placement = placed(part);
    const auto whole = static_cast<ValueId>(placement.root.size() - 1);
    CHECK(placement.root[at(part)] == whole);
    CHECK(placement.root[at(part == floor ? ceil : floor)] != whole);
    CHECK(placement.offsets[at(part)] == placement.offsets[at(whole)] + 4 * sizeof(float));
  }
}

TEST_CASE("exec/plan/numbers_of_threads") {
  for (const int threads : {1, 7, 1024}) CHECK(resolve_threads(threads) == threads);
  CHECK(resolve_threads(0) >= 1);
  for (const int threads : {-1, 1025})
    CHECK_ERROR(resolve_threads(threads), invalid_argument, "0 (all cores) to 1024 are allowed");
}

TEST_CASE("exec/plan/conversions_are_counted_by_what_they_do") {
  Graph graph;
  graph.name = "conversions";
  const ValueId x = add_input(graph, {16, 9, 11});
  const ValueId w = add_weights(graph, "w", {8, 16, 3, 3}, 0.2F, 1);
  ValueId y = add_node(graph, "Conv", {x, w}, {{"pads", std::vector<std::int64_t>(4, 1)}});
  for (const std::int64_t type : {7, 6, 1}) y = add_node(graph, "Cast", {y}, {{"to", type}});
  add_output(graph, y);
  PlanOptions options = on_cpu();
  options.conv_algorithm = "direct_packed";
  const PlanInfo plan = make_model(std::move(graph)).plan(options);
  CHECK(plan.type_conversions == 3);
  CHECK(plan.explicit_paddings == 1);
  CHECK(plan.layout_conversions == 2);  // to nhwc, and back
}

TEST_CASE("exec/plan/a_step_says_what_it_computes") {
  Graph graph;
  graph.name = "steps";
  const ValueId x = add_input(graph, {16, 9, 11}), w = add_weights(graph, "w", {8, 16, 3, 3}, 0.2F, 1);
  const ValueId y = add_node(graph, "Conv", {x, w}, {{"pads", std::vector<std::int64_t>(4, 1)}});
  const ValueId all[] = {add_node(graph, "Flatten", {y}), add_weights(graph, "v", {792, 5}, 0.2F, 2)};
  add_output(graph, add_node(graph, "Gemm", {all[0], all[1], no_id}));
  PlanOptions options = on_cpu(2);
  options.conv_algorithm = "im2col";
  std::shared_ptr<ThreadPool> pool;
  const auto plan = make_plan(*make_model(graph).impl(), options, pool);
  REQUIRE(plan->info.steps.size() == plan->steps.size());
  std::vector<std::string> ops;
  for (std::size_t i = 0; i < plan->steps.size(); ++i) {
    const StepInfo& info = plan->info.steps[i];
    const Node& node = plan->graph.node(plan->steps[i].node);
    INFO(info.name);
    ops.push_back(info.op);
    CHECK(info.name == node.name);
    CHECK(info.workspace_bytes == plan->steps[i].workspace_bytes);
    CHECK(info.no_op == !plan->steps[i].runs);
    CHECK(info.output_shapes[0] == plan->graph.value(node.outputs[0]).shape);
    CHECK(info.output_formats[0] == plan->graph.value(node.outputs[0]).format);
    CHECK(info.outputs[0] == plan->graph.value(node.outputs[0]).name);
    CHECK(info.inputs.size() == node.inputs.size());
    CHECK(to_string(info.attributes) == to_string(node.op->attributes()));
    CHECK((info.no_op || info.estimated_us == node.choice->candidate.estimated_us));
    CHECK((info.no_op || info.tolerance == node.choice->candidate.tolerance));
    CHECK((info.no_op || info.config == node.choice->candidate.config));
    if (info.op == "Gemm") {
      CHECK(info.inputs[2].empty());
      CHECK(info.bytes == sizeof(float) * (2 * 792 + 792 * 5 + 2 * 5));
      CHECK(info.flops == 2.0 * 2 * 792 * 5);
    }
    if (info.op != "Conv") continue;
    CHECK(info.algorithm == "im2col");
    CHECK(info.workspace_bytes > 0);
    CHECK(info.bytes == sizeof(float) * (2 * 16 * 99 + 8 * 144 + 2 * 8 * 99));
    CHECK(info.flops == 2.0 * 2 * 99 * 8 * 144);
    CHECK(info.reason == node.choice->reason);
    CHECK(info.problem == node.op->describe(plan->graph.input_infos(node)));
    REQUIRE(info.candidates.size() == node.choice->rows.size());
    for (std::size_t row = 0; row < info.candidates.size(); ++row) {
      const Choice::Row& from = node.choice->rows[row];
      const StepCandidate& shown = info.candidates[row];
      CHECK(shown.algorithm == from.kernel->name());
      CHECK(shown.refusal == from.refusal);
      if (!from.refusal.empty()) continue;
      CHECK(shown.config == from.candidate.config);
      CHECK(shown.estimated_us == from.candidate.estimated_us);
      CHECK(shown.workspace_bytes == from.candidate.workspace_bytes);
      CHECK(shown.tolerance == from.candidate.tolerance);
    }
  }
  CHECK(std::ranges::count(ops, "Conv") == 1);
  CHECK(std::ranges::count(ops, "Gemm") == 1);
  std::size_t workspace = 0;
  for (const StepInfo& step : plan->info.steps) workspace = std::max(workspace, step.workspace_bytes);
  const MemoryReport& memory = plan->info.memory;
  CHECK(memory.workspace_bytes == workspace);
  std::unordered_map<const void*, std::size_t> weights;
  std::size_t weight_bytes = 0, places = 0;
  for (const Value& value : plan->graph.values)
    if (value.is_constant()) weights[value.constant.data()] = value.constant.bytes();
  for (const auto& [data, bytes] : weights) weight_bytes += bytes;
  CHECK(memory.weight_bytes == weight_bytes);
  for (std::size_t v = 0; v < plan->roots.size(); ++v)
    places += plan->roots[v] == static_cast<ValueId>(v) && plan->offsets[v] != Placement::npos ? 1 : 0;
  CHECK(plan->info.placements.size() == places);
  CHECK(std::ranges::find(plan->info.placements, "x", &PlacementInfo::value)->first_step == 0);
  CHECK(memory.peak_bytes >= memory.activation_bytes);
  CHECK(memory.peak_bytes >= workspace);
  CHECK(memory.peak_bytes <= memory.activation_sum_bytes + (workspace + 63) / 64 * 64);
}

TEST_CASE("exec/plan/the_largest_constant_of_a_step") {
  const auto largest = [](std::vector<std::int64_t> rows) {
    Graph graph;
    graph.name = "joined";
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < rows.size(); ++i)
      inputs.push_back(add_weights(graph, "c" + std::to_string(i), {1, rows[i]}, 1, i));
    inputs.insert(inputs.begin() + 1, add_input(graph, {99}));
    add_output(graph, add_node(graph, "Concat", inputs, {{"axis", std::int64_t{1}}}));
    std::shared_ptr<ThreadPool> pool;
    const auto plan = make_plan(*make_model(std::move(graph)).impl(), on_cpu(), pool);
    REQUIRE(plan->steps.size() == 1);
    return plan->graph.value(plan->largest_constant(plan->steps[0])).name;
  };
  CHECK(largest({7, 3, 5}) == "c0");
  CHECK(largest({3, 7, 5}) == "c1");
  CHECK(largest({3, 5, 7}) == "c2");
  CHECK(largest({3, 7, 7}) == "c1");
}

TEST_CASE("exec/plan/weights_are_prepared_once_for_all_runners") {
  const Model model = make_model(small_net());
  const auto blobs = [&](std::int64_t batch) {
    PlanOptions options = on_cpu(batch);
    options.conv_algorithm = "im2col";
    std::vector<const void*> addresses;
    std::shared_ptr<ThreadPool> pool;
    const auto plan = make_plan(*model.impl(), options, pool);
    for (const PlanStep& step : plan->steps)
      if (step.blob != nullptr) addresses.push_back(step.blob.get());
    return addresses;
  };
  const auto first = blobs(1);
  CHECK(first.size() == 3);  // two convolutions and a Gemm
  CHECK(blobs(2) == first);
  CHECK(blobs(5) == first);
}

// Layers with the same shapes share packed weights by the weights, not by a bias that a run reads.
TEST_CASE("exec/plan/weights_are_prepared_once_for_all_layers_that_have_them") {
  Graph graph;
  graph.name = "layers";
  const ValueId x = add_input(graph, {8, 6, 6});
  const ValueId first = add_weights(graph, "first", {8, 8, 3, 3}, 1, 1),
                second = add_weights(graph, "second", {8, 8, 3, 3}, 1, 2);
  for (const ValueId filter : {first, second, first})
    add_output(
        graph,
        add_node(graph, "Conv",
                 {x, filter,
                  add_weights(graph, "bias" + std::to_string(graph.values.size()), {8}, 1, graph.values.size())}));
  PlanOptions options = on_cpu();
  options.conv_algorithm = "im2col";
  std::shared_ptr<ThreadPool> pool;
  const auto plan = make_plan(*make_model(std::move(graph)).impl(), options, pool);
  std::vector<const void*> blobs;
  std::size_t bytes = 0;
  for (const PlanStep& step : plan->steps)
    if (step.blob != nullptr) {
      blobs.push_back(step.blob.get());
      bytes = step.blob_bytes;
    }
  REQUIRE(blobs.size() == 3);
  CHECK(blobs[0] == blobs[2]);
  CHECK(blobs[0] != blobs[1]);
  CHECK(plan->info.memory.prepared_bytes == 2 * bytes);
}

TEST_CASE("exec/plan/what_nobody_names_has_the_type_that_its_node_gives_it") {
  Graph graph;
  graph.name = "values";
  Node node;
  node.name = "top";
  node.op = make_op("TopK", "", {}, 2, 2);
  node.inputs = {add_input(graph, {6}), graph.add_constant("k", Tensor::of<std::int64_t>(Shape{1}, {2}))};
  node.outputs = {graph.add_value("values"), no_id};
  add_output(graph, node.outputs[0]);
  graph.nodes.push_back(std::move(node));
  std::shared_ptr<ThreadPool> pool;
  const auto plan = make_plan(*make_model(std::move(graph)).impl(), on_cpu(), pool);
  const Value& indices = plan->graph.value(plan->graph.node(0).outputs.at(1));
  CHECK(indices.typed);
  CHECK(indices.dtype == DType::i64);
  CHECK(indices.shape == Shape{1, 2});
}

TEST_CASE("exec/runner/an_error_in_a_kernel_names_model_and_node") {
  Graph graph;
  graph.name = "failing";
  const ValueId x = add_input(graph, {4});
  const ValueId whole = add_node(graph, "Cast", {x}, {{"to", std::int64_t{7}}});
  const ValueId ratio = add_node(graph, "Div", {whole, whole});
  add_output(graph, add_node(graph, "Cast", {ratio}, {{"to", std::int64_t{1}}}));
  const Model model = make_model(std::move(graph));
  Runner runner(model, on_cpu());
  const Error error = error_of([&] { runner.run(random_tensor({1, 4}, 1)); });  // all of them 0 as integers
  CHECK(std::string(error.what()) == "failing: node Div_1 (Div): integer division by zero");
}

}  // namespace
}  // namespace lenslet::test
