// Networks on sparse values on a CUDA device.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "tests/cuda/device_case.h"
#include "tests/exec/small_net.h"
#include "tests/exec/sparse_pool_cases.h"
#include "tests/larger_error.h"

namespace lenslet::test {
namespace {

using Ints = std::vector<std::int64_t>;
constexpr std::int64_t bound = 2000, channels = 16;
const Ints size{8, 40, 40};

/// Two convolutions with one rulebook, one of stride 2 and its inverse, and two more; with these sites, or any.
Graph convolving_net(const Tensor& known = {}) {
  Graph graph;
  graph.name = "convolving";
  const ValueId indices = known.empty() ? add_port(graph, "indices", DType::i32, {bound, 4})
                                        : graph.add_constant("indices", known),
                features = add_port(graph, "features", DType::f32, {bound, channels});
  const auto with_grid = [](const Ints& kernel, AttributeList more = {}) {
    more.emplace_back("spatial_shape", size);
    more.emplace_back("kernel_shape", kernel);
    return more;
  };
  const Ints cube{3, 3, 3};
  const ValueId book = add_sparse(graph, "SparseRulebook", "book", {indices}, with_grid(cube), 1)[0];
  const auto down = add_sparse(
      graph, "SparseRulebook", "down", {indices},
      with_grid(cube, {{"kind", std::string("regular")}, {"strides", Ints{2, 2, 2}}, {"pads", Ints(6, 1)}}), 2);
  int layers = 0;
  const auto conv = [&](ValueId x, ValueId by, const char* kind, ValueId sites) {
    const std::string name = "conv" + std::to_string(layers++);
    const ValueId w = add_weights(graph, name + ".w", {channels, channels, 3, 3, 3}, 0.1F, layers);
    std::vector<ValueId> inputs{x, by, w};
    if (sites != no_id) inputs.push_back(sites);
    return add_node(graph, "Relu",
                    {add_sparse(graph, "SparseConv", name, inputs, {{"kind", std::string(kind)}}, 1)[0]});
  };
  ValueId x = conv(conv(features, book, "submanifold", no_id), book, "submanifold", no_id);
  x = conv(conv(x, down[0], "regular", down[1]), down[0], "inverse", indices);
  x = conv(conv(x, book, "submanifold", no_id), book, "submanifold", no_id);
  add_output(graph, add_sparse(graph, "SparseToDense", "dense", {indices, x}, {{"spatial_shape", size}}, 1)[0]);
  return graph;
}

std::vector<Tensor> sites_in_order(std::int64_t count) {
  std::vector<std::int32_t> cells(8 * 40 * 40);
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = static_cast<std::int32_t>(i);
  std::mt19937 random(static_cast<unsigned>(count));
  std::shuffle(cells.begin(), cells.end(), random);
  std::sort(cells.begin(), cells.begin() + count);
  Tensor indices(DType::i32, {bound, 4});
  std::ranges::fill(indices.values<std::int32_t>(), -1);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t* const row = indices.values<std::int32_t>().data() + 4 * i;
    const std::int32_t cell = cells[static_cast<std::size_t>(i)];
    row[0] = 0;
    row[1] = cell / 1600;
    row[2] = cell / 40 % 40;
    row[3] = cell % 40;
  }
  return {indices, random_tensor({bound, channels}, 3)};
}

std::vector<float> values_of(Runner& runner, const std::vector<Tensor>& inputs) {
  const auto values = runner.run(inputs)[0].values<float>();
  return {values.begin(), values.end()};
}

}  // namespace

// The neighbour table made by a rulebook's step, those made by each block, and a constant one give the same bits.
DEVICE_CASE("cuda/sparse/tables_of_neighbours") {
  const Model model = make_model(convolving_net());
  Runner cpu(model, on_cpu(1, 1));
  for (const char* const precision : {"fp32", "tf32", "fp16", "bf16"}) {
    CAPTURE(precision);
    PlanOptions options;
    options.device = "cuda";
    options.numerics = parse_numerics(precision);
    Runner shared(model, options);
    options.disabled_passes = {"share_neighbours"};
    Runner apart(model, options);
    int tables = 0;
    for (const StepInfo& step : shared.plan().steps)
      for (const auto& [name, value] : step.attributes) tables += name == "neighbours" ? 1 : 0;
    CHECK(tables == 2);
    for (const std::int64_t count : {2000, 0, 1, 777, 1999}) {
      CAPTURE(count);
      const std::vector<Tensor> inputs = sites_in_order(count);
      options.disabled_passes = {};
      Runner known(make_model(convolving_net(inputs[0])), options);
      const std::vector<float> got = values_of(shared, inputs), exact = values_of(cpu, inputs);
      CHECK(got == values_of(apart, inputs));
      CHECK(got == values_of(shared, inputs));
      CHECK(got == values_of(known, {inputs[1]}));
      double worst = 0, largest = 0;  // most cells are not sites
      for (std::size_t i = 0; i < got.size(); ++i) {
        worst = larger_error(worst, std::abs(double{got[i]} - double{exact[i]}));
        largest = std::max(largest, std::abs(double{exact[i]}));
      }
      CHECK(worst <= (std::string(precision) == "fp32"   ? 1e-5
                      : std::string(precision) == "bf16" ? 0.1
                                                         : 0.02) *
                         largest);
    }
  }
}

DEVICE_CASE("cuda/sparse/sites_of_each_run") { check_sites_of_each_run("cuda"); }
DEVICE_CASE("cuda/sparse/bits_repeat") { check_sparse_bits_repeat("cuda"); }
DEVICE_CASE("cuda/sparse/errors_of_the_run") { check_sparse_errors("cuda"); }
DEVICE_CASE("cuda/sparse/halves") {
  for (const char* const precision : {"fp16", "bf16"}) check_sparse_halves("cuda", precision);
}

}  // namespace lenslet::test
