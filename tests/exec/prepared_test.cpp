// Packed weights: shared if equal, freed when unused.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "runtime/exec/plan.h"
#include "small_net.h"
#include "tests/expect_error.h"

namespace lenslet::test {
namespace {

PreparedWeights weights(std::size_t bytes) {
  const auto data = std::make_shared<std::vector<char>>(bytes);
  return {{data, data->data()}, bytes};
}

TEST_CASE("exec/prepared/kept_while_used_and_up_to_the_bound_after") {
  PreparedCache cache(100);
  int made = 0;
  const auto get = [&](const char* key, std::size_t bytes) {
    return cache.get({key}, [&] {
      ++made;
      return weights(bytes);
    });
  };
  const PreparedWeights held = get("held", 1000);
  get("a", 60);
  get("b", 40);
  CHECK(cache.bytes() == 1100);
  get("a", 60);  // used again, so that b is older
  CHECK(made == 3);
  get("c", 30);
  cache.trim();
  CHECK(cache.bytes() == 1090);
  get("a", 60);
  get("c", 30);
  CHECK(made == 4);
  get("b", 40);
  CHECK(made == 5);
  CHECK(get("held", 1000).data == held.data);
}

TEST_CASE("exec/prepared/a_failure_leaves_no_entry") {
  PreparedCache cache(100);
  CHECK_ERROR(cache.get({"x"}, []() -> PreparedWeights { throw Error(ErrorKind::limit, "none"); }), limit, "none");
  CHECK(cache.bytes() == 0);
  CHECK(cache.get({"x"}, [] { return weights(8); }).bytes == 8);
}

TEST_CASE("exec/prepared/several_at_once_each_made_once") {
  PreparedCache cache(0);
  ThreadPool pool(3);
  std::vector<PreparedKey> keys;
  for (int i = 0; i < 40; ++i) keys.push_back({std::to_string(i % 20)});
  std::atomic<int> made = 0;
  const auto make = [&](std::size_t i) {
    ++made;
    return weights(1 + i % 20);
  };
  const std::vector<PreparedWeights> all = cache.get(keys, make, &pool);
  CHECK(made == 20);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    CHECK(all[i].bytes == 1 + i % 20);
    CHECK(all[i].data == all[i % 20].data);
  }
  keys.push_back({"new"});
  const auto fail = [](std::size_t) -> PreparedWeights { throw Error(ErrorKind::limit, "none"); };
  keys.push_back({"new, too"});
  CHECK_ERROR(cache.get(keys, fail, &pool), limit, "none");
  CHECK(cache.bytes() == 210);
  CHECK(cache.get(keys, make, &pool).at(3).data == all[3].data);
  CHECK(made == 22);
}

TEST_CASE("exec/prepared/equal_hashes_are_compared_by_their_bytes") {
  PreparedCache cache(100);
  const auto get = [&](float value) {
    return cache.get({"same", {Tensor::of<float>(Shape{1}, {value})}}, [] { return weights(1); }).data.get();
  };
  const void* const one = get(1);
  CHECK(get(2) != one);
  CHECK(get(1) == one);
}

// x[N,3,H,W] -> Conv whose filters a pass computes, larger than a key may be.
Graph folded_net() {
  Graph graph;
  graph.name = "folded";
  PortInfo port;
  port.name = "x";
  port.dims = {-1, 8, -1, -1};
  port.dim_names = {"N", "H", "W"};
  port.dim_names.insert(port.dim_names.begin() + 1, "");
  graph.input_ports.push_back(port);
  const ValueId x = graph.add_value("x");
  graph.inputs.push_back(x);
  const ValueId w = add_node(graph, "Neg", {add_weights(graph, "w", {32, 8, 3, 3}, 0.1F, 3)});
  const ValueId b = add_weights(graph, "b", {32}, 1, 4);
  add_output(graph, add_node(graph, "Conv", {x, w, b}));
  return graph;
}

PlanOptions of_size(std::int64_t h, std::int64_t w) {
  PlanOptions options = on_cpu();
  options.input_shapes = {{"x", Shape{1, 8, h, w}}};
  return options;
}

TEST_CASE("exec/prepared/sizes_share_what_does_not_depend_on_them") {
  for (const char* algorithm : {"im2col", "direct", "direct_packed", "winograd_f2", "winograd_f4", "winograd_f6"}) {
    CAPTURE(algorithm);
    const Model model = make_model(folded_net());
    std::size_t first = 0;
    std::vector<std::unique_ptr<Runner>> runners;
    for (std::int64_t size = 20; size < 60; ++size) {
      PlanOptions options = of_size(size, size + 3);
      options.conv_algorithm = algorithm;
      runners.push_back(std::make_unique<Runner>(model, options));
      if (first == 0) first = model.impl()->prepared->bytes();
    }
    CHECK(model.impl()->prepared->bytes() == first);
  }
}

TEST_CASE("exec/prepared/a_runner_that_flushes_denormals_prepares_the_same") {
  const float tiny = 3e-39F;
  std::vector<std::vector<float>> values;
  for (const bool flush : {true, false}) {
    Graph graph = folded_net();
    for (Value& value : graph.values)
      if (value.name == "w") {
        Tensor filters(DType::f32, value.constant.shape());
        std::fill(filters.values<float>().begin(), filters.values<float>().end(), tiny);
        value.constant = filters;
      }
    const Model model = make_model(std::move(graph));
    PlanOptions options = of_size(30, 30);
    options.threads = 3;
    options.flush_denormals = flush;
    options.conv_algorithm = "winograd_f4";
    std::shared_ptr<ThreadPool> pool;
    const auto plan = make_plan(*model.impl(), options, pool);
    REQUIRE(pool != nullptr);
    for (const PlanStep& step : plan->steps)
      if (step.blob != nullptr) {
        const auto* const data = static_cast<const float*>(step.blob.get());
        values.emplace_back(data, data + 36 * 8 * 32);
      }
  }
  REQUIRE(values.size() == 2);
  CHECK(values[0] == values[1]);
  CHECK(std::count(values[0].begin(), values[0].end(), 0.0F) < 36 * 8 * 32 / 2);
}

TEST_CASE("exec/prepared/what_no_runner_uses_is_bounded") {
  const Model model = make_model(folded_net());
  const std::size_t bound = 4 * (32 * 8 * 9 + 32) * sizeof(float);
  {
    std::vector<std::unique_ptr<Runner>> runners;
    std::size_t most = 0;
    for (const std::string& algorithm : conv_algorithm_names("cpu")) {
      if (algorithm == "depthwise" || algorithm == "im2col_nchw" || algorithm == "planes") continue;
      if (algorithm.starts_with("gather")) continue;                                   // SparseConv's
      if (algorithm.starts_with("int8_") || algorithm.starts_with("bf16_")) continue;  // of other types
      PlanOptions options = of_size(30, 30);
      options.conv_algorithm = algorithm;
      runners.push_back(std::make_unique<Runner>(model, options));
    }
    most = model.impl()->prepared->bytes();
    CHECK(most > bound);
    const Tensor x = random_tensor({1, 8, 30, 30}, 1);
    const Tensor first = runners[0]->run(x)[0].clone();
    for (const auto& runner : runners) CHECK(runner->run(x)[0].elems() == first.elems());
  }
  CHECK(model.impl()->prepared->bytes() <= bound);
}

TEST_CASE("exec/prepared/describing_prepares_nothing") {
  const Model model = make_model(folded_net());
  const PlanInfo described = model.plan(of_size(30, 31));
  CHECK(model.impl()->prepared->bytes() == 0);
  Runner runner(model, of_size(30, 31));
  const MemoryReport &a = described.memory, &b = runner.plan().memory;
  CHECK(a.prepared_bytes > 0);
  CHECK(a.prepared_bytes == b.prepared_bytes);
  CHECK(b.prepared_bytes == model.impl()->prepared->bytes());
  CHECK(a.peak_bytes == b.peak_bytes);
  CHECK(a.weight_bytes == b.weight_bytes);
  CHECK(described.steps.size() == runner.plan().steps.size());
}

}  // namespace
}  // namespace lenslet::test
