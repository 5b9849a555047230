// A network on sparse values: each run brings its own sites, within the bound of the plan.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"
#include "tests/exec/sparse_pool_cases.h"

namespace lenslet::test {
namespace {

using Ints = std::vector<std::int64_t>;
const Ints size{6, 12, 10}, halved{3, 6, 5};

/// Sites in any order -> two submanifold convolutions by one rulebook -> one of stride 2, at most 60 sites -> dense.
Graph encoder(std::int64_t bound) {
  Graph graph;
  graph.name = "encoder";
  const ValueId indices = add_port(graph, "indices", DType::i32, {bound, 4}),
                features = add_port(graph, "features", DType::f32, {bound, 3});
  const AttributeList grid{{"spatial_shape", size}, {"images", std::int64_t{2}}};
  const auto with = [](AttributeList list, const AttributeList& more) {
    list.insert(list.end(), more.begin(), more.end());
    return list;
  };
  const auto sorted = add_sparse(graph, "SparseSort", "sort", {indices, features}, grid, 2);
  const ValueId book =
      add_sparse(graph, "SparseRulebook", "book", {sorted[0]}, with(grid, {{"kernel_shape", Ints{3, 3, 3}}}), 1)[0];
  const ValueId a = add_sparse(graph, "SparseConv", "a",
                               {sorted[1], book, add_weights(graph, "wa", {16, 3, 3, 3, 3}, 0.2F, 1)}, {}, 1)[0];
  const ValueId b =
      add_sparse(graph, "SparseConv", "b",
                 {add_node(graph, "Relu", {a}), book, add_weights(graph, "wb", {16, 16, 3, 3, 3}, 0.1F, 2)}, {}, 1)[0];
  const auto down = add_sparse(graph, "SparseRulebook", "down", {sorted[0]},
                               with(grid, {{"kind", std::string("regular")},
                                           {"kernel_shape", Ints{3, 3, 3}},
                                           {"strides", Ints{2, 2, 2}},
                                           {"pads", Ints{1, 1, 1, 1, 1, 1}},
                                           {"max_sites", std::int64_t{60}}}),
                               2);
  const ValueId c = add_sparse(
      graph, "SparseConv", "c",
      {add_node(graph, "Add", {a, b}), down[0], add_weights(graph, "wc", {8, 16, 3, 3, 3}, 0.1F, 3), down[1]},
      {{"kind", std::string("regular")}}, 1)[0];
  add_output(graph, add_sparse(graph, "SparseToDense", "dense", {down[1], add_node(graph, "Relu", {c})},
                               {{"spatial_shape", halved}, {"images", std::int64_t{2}}}, 1)[0]);
  return graph;
}

/// `count` sites in a corner of the second image, shuffled, with their features; the rest of `bound` rows is empty.
std::vector<Tensor> scan(std::int64_t count, std::int64_t bound, std::int64_t spread = 1) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::mt19937 random(5);
  std::shuffle(order.begin(), order.end(), random);
  Tensor indices(DType::i32, {bound, 4});
  std::ranges::fill(indices.values<std::int32_t>(), -1);
  Tensor features = random_tensor({bound, 3}, 8);
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::int32_t* const row = indices.values<std::int32_t>().data() + 4 * i;
    const auto cell = static_cast<std::int32_t>(order[i] * spread);
    row[0] = 1;
    row[1] = cell / 120 % 6;
    row[2] = cell / 10 % 12;
    row[3] = cell % 10;
    for (std::size_t c = 0; c < 3; ++c)
      features.values<float>()[3 * i + c] = static_cast<float>(order[i] % 7) - static_cast<float>(c);
  }
  return {indices, features};
}

std::vector<float> run(Runner& runner, const std::vector<Tensor>& inputs) {
  const auto values = runner.run(inputs)[0].values<float>();
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("sparse/one_plan_takes_any_number_of_sites") {
  const Model model = make_model(encoder(90));
  for (const int threads : {1, 2}) {
    Runner runner(model, on_cpu(1, threads));
    for (const std::int64_t count : {90, 0, 1, 40, 89}) {
      CAPTURE(count);
      const std::vector<float> got = run(runner, scan(count, 90));
      Runner exact(make_model(encoder(count)), on_cpu(1, 1));
      CHECK(got == run(exact, scan(count, count)));
      CHECK(std::ranges::any_of(got, [](float v) { return v != 0; }) == (count > 0));
      CHECK(std::all_of(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(got.size() / 2),
                        [](float v) { return v == 0; }));  // the first image is empty
    }
  }
}

TEST_CASE("sparse/bits_repeat") {
  const Model model = make_model(encoder(90));
  Runner runner(model, on_cpu(1, 2));
  const std::vector<Tensor> inputs = scan(77, 90);
  const std::vector<float> first = run(runner, inputs);
  for (int i = 0; i < 100; ++i) REQUIRE(run(runner, inputs) == first);
}

TEST_CASE("sparse/more_sites_than_the_bound_end_the_run") {
  const Model model = make_model(encoder(90));
  Runner runner(model, on_cpu(1, 2));
  const std::vector<float> before = run(runner, scan(40, 90));
  const Error error = error_of([&] { run(runner, scan(90, 90, 7)); });
  CHECK(error.kind() == ErrorKind::invalid_argument);
  const std::string text = error.what();
  CAPTURE(text);
  CHECK(text.find("node down (SparseRulebook): ") != text.npos);
  CHECK(text.find(" output sites, more than the bound of 60 (max_sites)") != text.npos);
  std::vector<Tensor> twice = scan(40, 90);
  std::copy_n(twice[0].values<std::int32_t>().begin(), 4, twice[0].values<std::int32_t>().begin() + 8);
  CHECK(std::string(error_of([&] { run(runner, twice); }).what()).find("node sort (SparseSort): site 2 ") !=
        std::string::npos);
  CHECK(run(runner, scan(40, 90)) == before);  // the runner still works
}

TEST_CASE("sparse/pool") {
  check_sites_of_each_run("cpu");
  check_sparse_errors("cpu");
}

TEST_CASE("sparse/steps") {
  const Model model = make_model(encoder(90));
  const PlanInfo plan = model.plan(on_cpu());
  std::vector<std::string> algorithms;
  for (const StepInfo& step : plan.steps)
    if (step.op == "SparseConv") algorithms.push_back(step.algorithm);
  CHECK(algorithms == std::vector<std::string>(3, "gathered_tiles"));
  CHECK(std::ranges::count(plan.steps, "SparseRulebook", &StepInfo::op) == 2);
  PlanOptions forced = on_cpu();
  forced.conv_algorithm = "gather_scatter";
  CHECK(model.plan(forced).steps[2].algorithm == "gather_scatter");
  Runner fast(model, on_cpu()), slow(model, forced);
  const std::vector<float> a = run(fast, scan(70, 90)), b = run(slow, scan(70, 90));
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-4));
}

}  // namespace lenslet::test
