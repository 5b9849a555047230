#include "tests/exec/sparse_pool_cases.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"

namespace lenslet::test {

std::vector<ValueId> add_sparse(Graph& graph, const std::string& op, const std::string& name,
                                std::vector<ValueId> inputs, const AttributeList& attributes, std::size_t outputs) {
  Node node;
  node.name = name;
  node.op = make_op(op, "lenslet", attributes, inputs.size(), outputs, 1);
  node.inputs = std::move(inputs);
  for (std::size_t i = 0; i < outputs; ++i) node.outputs.push_back(graph.add_value(name + ":" + std::to_string(i)));
  graph.nodes.push_back(node);
  return node.outputs;
}

namespace {

using Ints = std::vector<std::int64_t>;
const Ints size{6, 52, 40}, halved{3, 26, 20};
constexpr std::int64_t bound = 3000, channels = 5;

Graph pooling_net(std::int64_t max_sites) {
  Graph graph;
  graph.name = "pooling";
  const ValueId indices = add_port(graph, "indices", DType::i32, {bound, 4}),
                features = add_port(graph, "features", DType::f32, {bound, channels});
  const AttributeList grid{{"spatial_shape", size}, {"images", std::int64_t{2}}};
  const auto with = [&](AttributeList more) {
    more.insert(more.end(), grid.begin(), grid.end());
    return more;
  };
  const auto sorted = add_sparse(graph, "SparseSort", "sort", {indices, features}, grid, 2);
  const auto down = add_sparse(graph, "SparseRulebook", "down", {sorted[0]},
                               with({{"kind", std::string("regular")},
                                     {"kernel_shape", Ints{3, 3, 3}},
                                     {"strides", Ints{2, 2, 2}},
                                     {"pads", Ints{1, 1, 1, 1, 1, 1}},
                                     {"max_sites", max_sites}}),
                               2);
  const ValueId pooled = add_sparse(graph, "SparseMaxPool", "pool", {sorted[1], down[0], down[1]},
                                    {{"kernel_shape", Ints{3, 3, 3}}}, 1)[0];
  const ValueId book =
      add_sparse(graph, "SparseRulebook", "book", {down[1]},
                 {{"spatial_shape", halved}, {"images", std::int64_t{2}}, {"kernel_shape", Ints{3, 3, 3}}}, 1)[0];
  add_output(graph, add_sparse(graph, "SparseToDense", "dense", {down[1], pooled},
                               {{"spatial_shape", halved}, {"images", std::int64_t{2}}}, 1)[0]);
  add_output(graph, book);
  return graph;
}

/// `count` sites of both images, shuffled, with their features; the remaining rows are empty.
std::vector<Tensor> scan(std::int64_t count, unsigned seed) {
  std::vector<std::int32_t> cells(static_cast<std::size_t>(2 * size[0] * size[1] * size[2]));
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = static_cast<std::int32_t>(i);
  std::mt19937 random(seed);
  std::shuffle(cells.begin(), cells.end(), random);
  Tensor indices(DType::i32, {bound, 4});
  std::ranges::fill(indices.values<std::int32_t>(), -1);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::int32_t* const row = indices.values<std::int32_t>().data() + 4 * i;
    const std::int32_t cell = cells[i];
    row[0] = cell / (6 * 52 * 40);
    row[1] = cell / (52 * 40) % 6;
    row[2] = cell / 40 % 52;
    row[3] = cell % 40;
  }
  return {indices, random_tensor({bound, channels}, seed)};
}

std::vector<std::byte> run(Runner& runner, const std::vector<Tensor>& inputs) {
  std::vector<std::byte> bits;
  for (const Tensor& output : runner.run(inputs)) {
    const auto* const bytes = static_cast<const std::byte*>(output.data());
    bits.insert(bits.end(), bytes, bytes + output.bytes());
  }
  return bits;
}

PlanOptions on(const std::string& device) {
  PlanOptions options;
  options.device = device;
  return options;
}

}  // namespace

void check_sites_of_each_run(const std::string& device) {
  const Model model = make_model(pooling_net(bound));
  Runner runner(model, on(device)), cpu(model, on_cpu(1, 1));
  for (const std::int64_t count : {3000, 0, 1, 1500, 2999}) {
    CAPTURE(count);
    const std::vector<Tensor> inputs = scan(count, static_cast<unsigned>(count));
    CHECK(run(runner, inputs) == run(cpu, inputs));
  }
}

void check_sparse_bits_repeat(const std::string& device) {
  const Model model = make_model(pooling_net(bound));
  Runner runner(model, on(device));
  const std::vector<Tensor> inputs = scan(2500, 5);
  const std::vector<std::byte> first = run(runner, inputs);
  for (int i = 0; i < 100; ++i) REQUIRE(run(runner, inputs) == first);
}

void check_sparse_errors(const std::string& device) {
  const Model model = make_model(pooling_net(1000));
  PlanOptions each = on(device);
  each.sync_each_step = true;
  for (const PlanOptions& options : {on(device), each}) {
    Runner runner(model, options), cpu(model, on_cpu(1, 1));
    const std::vector<Tensor> good = scan(100, 3);
    const std::vector<std::byte> before = run(runner, good);
    const auto check = [&](const std::vector<Tensor>& inputs, const char* part) {
      const Error error = error_of([&] { run(runner, inputs); });
      CHECK(error.kind() == ErrorKind::invalid_argument);
      CHECK(std::string(error.what()) == error_of([&] { run(cpu, inputs); }).what());
      CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, std::string(error.what()));
      CHECK(run(runner, good) == before);  // the runner still works
    };
    check(scan(2000, 3), " output sites, more than the bound of 1000 (max_sites)");
    std::vector<Tensor> twice = scan(100, 3);
    std::copy_n(twice[0].values<std::int32_t>().begin(), 4, twice[0].values<std::int32_t>().begin() + 80);
    check(twice, "node sort (SparseSort): site 20 (");
    std::vector<Tensor> outside = scan(100, 3);
    outside[0].values<std::int32_t>()[42] = 52;
    check(outside, "lies outside 2 images of 6x52x40");
  }
}

void check_sparse_halves(const std::string& device, const std::string& precision) {
  const Model model = make_model(pooling_net(bound));
  PlanOptions options = on(device);
  options.numerics = parse_numerics(precision);
  Runner runner(model, options), cpu(model, on_cpu(1, 1));
  const std::vector<Tensor> inputs = scan(1234, 7);
  const auto got = runner.run(inputs)[0].values<float>(), wanted = cpu.run(inputs)[0].values<float>();
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == doctest::Approx(wanted[i]).epsilon(0.01));
}

}  // namespace lenslet::test
