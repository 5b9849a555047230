// ElementwiseChain: functions one after the other are the oracle's, in any order, with operands of all broadcasts.
#include <doctest/doctest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "ops/core/row_kernel.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/random_seed.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

struct Function {
  std::string name;
  std::int64_t inputs = 0;
  bool reversed = false;
  double a = 0, b = 0;
};

OpCase chain_of(const std::vector<Function>& functions, std::vector<Tensor> inputs, std::vector<int> maybe = {}) {
  std::string names;
  std::vector<std::int64_t> taken, reversed;
  std::vector<double> a, b;
  for (const Function& f : functions) {
    names.append(names.empty() ? "" : "+").append(f.name);
    taken.push_back(f.inputs), reversed.push_back(f.reversed ? 1 : 0), a.push_back(f.a), b.push_back(f.b);
  }
  return {.op = "ElementwiseChain",
          .domain = "lenslet",
          .opset = 0,
          .attributes = {{"functions", names}, {"inputs", taken}, {"reversed", reversed}, {"a", a}, {"b", b}},
          .inputs = std::move(inputs),
          .maybe_constant = std::move(maybe),
          .tolerance = 2e-6 * static_cast<double>(functions.size())};
}

/// An operand's shape that broadcasts to x's: its own, one number, by channels, by images and channels, by position, by
/// the last axis.
Shape operand_shape(const Shape& x, int form) {
  const auto ones = [&](auto keep) {
    Shape shape = x;
    for (int axis = 0; axis < x.rank(); ++axis)
      if (!keep(axis)) shape = shape.with(axis, 1);
    return shape;
  };
  switch (form) {
    case 0:
      return {};
    case 1:
      return ones([](int axis) { return axis == 1; });
    case 2:
      return ones([](int axis) { return axis < 2; });
    case 3:
      return ones([](int axis) { return axis != 1; });
    case 4:
      return {x[x.rank() - 1]};
    default:
      return x;
  }
}

const Shape shapes[] = {{2, 16, 7, 5}, {1, 13, 6, 6}, {2, 8, 1, 9},    {3, 24, 4, 1},  {2, 5, 33},
                        {1, 3, 1, 1},  {7, 40},       {2, 1030, 2, 3}, {129},          {2, 3, 4, 5, 6},
                        {1, 0, 4, 4},  {2, 2, 1100},  {2, 96, 5, 5},   {1, 2056, 1, 3}};

}  // namespace

TEST_CASE("elementwise_chain/drawn_chains_are_the_oracles") {
  std::mt19937 generator(random_seed());
  const auto draws = [&] { return static_cast<unsigned>(generator()); };
  const auto below = [&](int count) { return static_cast<int>(draws() % static_cast<unsigned>(count)); };
  const Function alone[] = {{"relu"},
                            {"clip", 0, false, -0.5, 0.75},
                            {"leaky_relu", 0, false, 0.1},
                            {"sigmoid"},
                            {"silu"},
                            {"hard_swish", 0, false, 1.0 / 6, 0.5},
                            {"hard_sigmoid", 0, false, 0.2, 0.5},
                            {"gelu"},
                            {"gelu_tanh"},
                            {"swish", 0, false, 1.5},
                            {"affine_relu", 0, false, 0.9, -0.4},
                            {"Tanh"},
                            {"Abs"},
                            {"Neg"},
                            {"Erf"},
                            {"Softplus"},
                            {"Square"}};
  const char* const with_another[] = {"Add", "Sub", "Mul", "Max", "Min", "PRelu", "Div", "ScaleShift"};
  const int rounds = std::getenv("LENSLET_TEST_REDUCED") != nullptr ? 40 : 120;
  for (int round = 0; round < rounds; ++round) {
    const Shape& x = shapes[static_cast<std::size_t>(round) % std::size(shapes)];
    std::vector<Tensor> inputs{random_f32(x, draws(), 0, 1)};
    std::vector<Function> functions;
    std::vector<int> maybe;
    const int length = 1 + below(8);
    bool squared = false;
    while (static_cast<int>(functions.size()) < length) {
      if (below(2) == 0) {
        const Function& f = alone[below(static_cast<int>(std::size(alone)))];
        if (f.name == "Square" && std::exchange(squared, true)) continue;
        functions.push_back(f);
        continue;
      }
      Function f{with_another[below(static_cast<int>(std::size(with_another)))]};
      const bool scale_shift = f.name == "ScaleShift";
      const std::size_t operands_left = 5 - inputs.size();
      f.inputs = scale_shift ? 2 : below(3) == 0 ? 0 : 1;
      if (static_cast<std::size_t>(f.inputs) > operands_left) continue;
      if (f.inputs == 0) f.a = 0.5 + 0.25 * below(5);
      f.reversed = !scale_shift && f.name != "Div" && below(3) == 0;
      for (std::int64_t i = 0; i < f.inputs; ++i) {
        const Shape shape = x.rank() < 2 ? Shape{} : operand_shape(x, scale_shift && below(2) == 0 ? 1 : below(7));
        if (below(2) == 0) maybe.push_back(static_cast<int>(inputs.size()));
        inputs.push_back(random_of(DType::f32, shape, draws(), f.name == "Div" ? 0.75 : -1.5, 1.5));
      }
      functions.push_back(f);
    }
    CAPTURE(round);
    check_op(chain_of(functions, inputs, maybe));
  }
}

// Roots, powers and quotients, where they are well conditioned.
TEST_CASE("elementwise_chain/of_positive_numbers") {
  const Tensor x = random_f32({2, 12, 5, 7}, 1, 0, 1), gate = random_f32({2, 12, 1, 1}, 2, 0, 1);
  check_op(chain_of({{"Square"}, {"Add", 0, false, 1}, {"Sqrt"}, {"Reciprocal"}, {"Exp"}}, {x}));
  check_op(chain_of({{"Square"}, {"Add", 0, false, 1}, {"Div", 1, true}, {"Sub", 0, true, 1}}, {x, gate}));
}

// StarReLU, the end of a block with squeeze-and-excite, BatchNormalization before a sum.
TEST_CASE("elementwise_chain/every_instruction_set") {
  const Tensor x = random_f32({2, 37, 6, 7}, 1, 0, 1), z = random_f32({2, 37, 6, 7}, 2, 0, 1);
  const Tensor gate = random_f32({2, 37, 1, 1}, 3, 0, 1), by_channel = random_f32({37, 1, 1}, 4, 0, 1);
  check_op_on_every_instruction_set(
      chain_of({{"relu"}, {"Square"}, {"Mul", 0, false, 0.9}, {"Add", 0, false, -0.4}}, {x}));
  check_op_on_every_instruction_set(chain_of({{"Mul", 1}, {"Add", 1}, {"relu"}}, {x, gate, z}));
  check_op_on_every_instruction_set(chain_of({{"ScaleShift", 2}, {"Add", 1}}, {x, by_channel, by_channel, z}, {1, 2}));
}

TEST_CASE("elementwise_chain/threads_share_it") {
  const Tensor x = random_f32({1, 116, 28, 28}, 1, 0, 3);
  check_op(chain_of({{"Mul", 1}, {"Add", 1}, {"relu"}}, {x, random_f32({1, 116, 1, 1}, 2, 0, 1), x}));
}

// Constants of BatchNormalization stay float32.
TEST_CASE("elementwise_chain/bfloat16_with_float32_operands") {
  unsigned seed = 1;
  const auto drawn = [&](DType dtype, const Shape& shape) { return random_of(dtype, shape, ++seed, -2, 2); };
  for (const Shape& x : shapes) {
    if (x.rank() < 2) continue;
    const Shape by_channel = operand_shape(x, 1);
    check_op(chain_of({{"ScaleShift", 2}, {"Add", 1}, {"relu"}, {"Mul", 1}},
                      {drawn(DType::bf16, x), drawn(DType::f32, by_channel), drawn(DType::f32, by_channel),
                       drawn(DType::bf16, x), drawn(DType::bf16, operand_shape(x, 2))},
                      {1, 2}));
    check_op(chain_of({{"Mul", 1}, {"Sub", 1, true}},
                      {drawn(DType::bf16, x), drawn(DType::f32, operand_shape(x, 4)), drawn(DType::f32, x)}));
  }
}

// Rows of an image in a band: operands of what shapes allow it.
TEST_CASE("elementwise_chain/rows") {
  const auto by_rows = [](const Shape& x, const Shape& operand) {
    const auto op = make_op(chain_of({{"Add", 1}}, {Tensor(DType::f32, x), Tensor(DType::f32, operand)}));
    const InputInfo inputs[] = {{true, {DType::f32, x}}, {true, {DType::f32, operand}}};
    const Problem problem(op, inputs);
    const Kernel& kernel = *kernels_of("ElementwiseChain", DeviceKind::cpu).front();
    const DeviceProfile cpu = cpu_profile(1);
    for (const Candidate& candidate : kernel.offer(problem, {cpu}).candidates)
      if (candidate.outputs[0] == formats::nhwc) return kernel.bind({problem, candidate, cpu})->row_kernel() != nullptr;
    return false;
  };
  const Shape x{2, 6, 5, 4};
  for (const Shape& operand : {Shape{}, Shape{6, 1, 1}, Shape{2, 6, 1, 1}, Shape{2, 1, 5, 4}, x, Shape{1, 6, 5, 4}})
    CHECK(by_rows(x, operand));
  for (const Shape& operand : {Shape{4}, Shape{5, 1}, Shape{2, 6, 5, 1}}) CHECK_FALSE(by_rows(x, operand));
  CHECK(by_rows({2, 6, 5, 1}, {5, 1}));
  CHECK(by_rows({2, 6, 1, 4}, {4}));
}

TEST_CASE("elementwise_chain/refusals") {
  const Tensor x(DType::f32, {2, 6, 5, 4}), channels(DType::f32, {6, 1, 1});
  CHECK(refusal(chain_of({{"Add", 1}, {"relu"}}, {x, channels})).empty());
  const auto error = [](const OpCase& c) { return infer_error(c); };
  CHECK(error(chain_of({}, {x})) == ErrorKind::invalid_model);
  CHECK(error(chain_of(std::vector<Function>(9, Function{"relu"}), {x})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"none"}}, {x})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"Gather"}}, {x})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"activation"}}, {x})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"relu", 1}}, {x, channels})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"relu", 0, true}}, {x})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"ScaleShift", 1}}, {x, channels})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"Add", 1}}, {x})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"Add", 1}}, {x, Tensor(DType::f16, {6, 1, 1})})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"Add", 1}}, {x, Tensor(DType::f32, {5, 1, 1})})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"Add", 1}}, {channels, x})) == ErrorKind::invalid_model);
  CHECK(error(chain_of({{"relu"}}, {Tensor(DType::i32, {4})})) == ErrorKind::unsupported);
  OpCase uneven = chain_of({{"relu"}}, {x});
  uneven.attributes[1].second = std::vector<std::int64_t>{};
  CHECK(error(uneven) == ErrorKind::invalid_model);
}
