// LSTM, GRU and RNN: every direction, layout, optional input and activation.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/core/kernel.h"
#include "ops/recurrent/recurrent.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

using Strings = std::vector<std::string>;
using Reals = std::vector<double>;

struct Sizes {
  std::int64_t seq = 5, batch = 3, input = 7, hidden = 6;
};

std::int64_t directions_of(const std::string& direction) { return direction == "bidirectional" ? 2 : 1; }

/// X, W, R, B and all optional inputs except sequence_lens, with weights as small as after initialisation.
OpCase recurrent(const std::string& op, const Sizes& s, const std::string& direction, bool batch_first, unsigned seed) {
  const std::int64_t d = directions_of(direction), gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  const double scale = 1 / std::sqrt(static_cast<double>(s.hidden));
  const auto weights = [&](const Shape& shape) { return random_of(DType::f32, shape, ++seed, -scale, scale); };
  const Shape state = batch_first ? Shape{s.batch, d, s.hidden} : Shape{d, s.batch, s.hidden};
  OpCase c{.op = op,
           .opset = 14,
           .attributes = {{"hidden_size", s.hidden}, {"direction", direction}, {"layout", std::int64_t{batch_first}}},
           .inputs = {random_f32(batch_first ? Shape{s.batch, s.seq, s.input} : Shape{s.seq, s.batch, s.input}, seed),
                      weights({d, gates * s.hidden, s.input}), weights({d, gates * s.hidden, s.hidden}),
                      weights({d, 2 * gates * s.hidden}), Tensor(), random_f32(state, ++seed)},
           .outputs = 2,
           .maybe_constant = {1, 2, 3}};
  if (op == "LSTM") {
    c.inputs.push_back(random_f32(state, ++seed));
    c.inputs.push_back(weights({d, 3 * s.hidden}));
    c.outputs = 3;
  }
  const std::vector<InputInfo> infos = infos_of(c.inputs, {});
  c.tolerance = recurrent_tolerance(static_cast<const RecurrentOp&>(*make_op(c)).problem(infos));
  return c;
}

Tensor lengths(std::vector<std::int32_t> values) {
  return Tensor::of<std::int32_t>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

constexpr const char* all_ops[] = {"LSTM", "GRU", "RNN"};
constexpr const char* all_directions[] = {"forward", "reverse", "bidirectional"};

}  // namespace

TEST_CASE("recurrent/directions_and_layouts") {
  unsigned seed = 100;
  for (const char* op : all_ops)
    for (const char* direction : all_directions)
      for (const bool batch_first : {false, true}) {
        OpCase c = recurrent(op, {}, direction, batch_first, seed += 20);
        check_op(c);
        c.inputs[4] = lengths({3, 5, 1});
        check_op(c);
        // Only Y, and no optional input.
        c.inputs.resize(3);
        c.outputs = 1;
        check_op(c);
      }
}

TEST_CASE("recurrent/optional_inputs") {
  unsigned seed = 400;
  for (const char* op : all_ops) {
    const OpCase c = recurrent(op, {.seq = 4, .batch = 2}, "bidirectional", false, seed += 20);
    for (std::size_t i = 3; i < c.inputs.size(); ++i) {
      OpCase without = c;
      without.inputs[i] = Tensor();
      check_op(without);
    }
    OpCase two = c;
    two.outputs = 2;
    check_op(two);
  }
}

TEST_CASE("recurrent/forms") {
  for (const bool peepholes : {false, true}) {
    OpCase c = recurrent("LSTM", {}, "bidirectional", false, 520);
    if (!peepholes) c.inputs[7] = Tensor();
    c.attributes.emplace_back("input_forget", std::int64_t{1});
    check_op(c);
    c.attributes.emplace_back("clip", 0.25);
    check_op(c);
    c.attributes.erase(c.attributes.end() - 2);
    check_op(c);
  }
  for (const bool clips : {false, true}) {
    OpCase c = recurrent("GRU", {}, "bidirectional", true, 540);
    if (clips) c.attributes.emplace_back("clip", 0.25);
    check_op(c);
    c.attributes.emplace_back("linear_before_reset", std::int64_t{1});
    check_op(c);
    c.inputs[4] = lengths({1, 0, 4});
    check_op(c);
  }
  OpCase c = recurrent("RNN", {}, "reverse", false, 560);
  c.attributes.emplace_back("clip", 0.25);
  check_op(c);
  c.opset = 7;
  c.attributes.erase(c.attributes.begin() + 2);  // layout did not exist yet
  check_op(c);
  c.attributes.emplace_back("output_sequence", std::int64_t{1});
  check_op(c);
}

TEST_CASE("recurrent/activations") {
  // With and without parameters; ScaledTanh and Affine have no operator from which defaults could come.
  struct Named {
    const char* name;
    Reals alpha, beta;
  };
  const Named named[] = {{"Relu", {}, {}},
                         {"Tanh", {}, {}},
                         {"sigmoid", {}, {}},
                         {"Affine", {0.5}, {.1}},
                         {"Affine", {}, {}},
                         {"LeakyRelu", {}, {}},
                         {"LeakyRelu", {.3}, {}},
                         {"ThresholdedRelu", {}, {}},
                         {"ThresholdedRelu", {.2}, {}},
                         {"ScaledTanh", {}, {}},
                         {"ScaledTanh", {.7}, {1.5}},
                         {"HardSigmoid", {}, {}},
                         {"HardSigmoid", {.3}, {.4}},
                         {"Elu", {}, {}},
                         {"Elu", {.5}, {}},
                         {"Softsign", {}, {}},
                         {"Softplus", {}, {}}};
  unsigned seed = 600;
  for (const Named& function : named) {
    OpCase c = recurrent("RNN", {}, "forward", false, seed += 20);
    c.attributes.emplace_back("activations", Strings{function.name});
    c.attributes.emplace_back("activation_alpha", function.alpha);
    c.attributes.emplace_back("activation_beta", function.beta);
    check_op(c);
  }
  // Parameters go in order to the functions that take one, and each direction has its own functions.
  OpCase c = recurrent("LSTM", {}, "bidirectional", false, seed += 20);
  c.attributes.emplace_back("activations", Strings{"HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "ScaledTanh", "Elu"});
  c.attributes.emplace_back("activation_alpha", Reals{.25, .1, .9, .5});
  c.attributes.emplace_back("activation_beta", Reals{.45, 1.2});
  check_op(c);
  c = recurrent("GRU", {}, "bidirectional", false, seed += 20);
  c.attributes.emplace_back("activations", Strings{"HardSigmoid", "Softsign", "Sigmoid", "LeakyRelu"});
  c.attributes.emplace_back("activation_alpha", Reals{.25, .3});
  check_op(c);
}

TEST_CASE("recurrent/sizes") {
  unsigned seed = 1000;
  for (const char* op : all_ops) {
    check_op(recurrent(op, {.seq = 130, .batch = 2, .input = 12, .hidden = 20}, "bidirectional", false, seed += 20));
    check_op(recurrent(op, {.seq = 3, .batch = 1, .input = 1, .hidden = 1}, "forward", false, seed += 20));
    check_op(recurrent(op, {.seq = 2, .batch = 19, .input = 33, .hidden = 65}, "reverse", true, seed += 20));
    // CPU threads share each step; CUDA: more of the state than a warp reads at once.
    check_op(recurrent(op, {.seq = 2, .batch = 1, .input = 4, .hidden = 520}, "forward", false, seed += 20));
    check_op(recurrent(op, {.seq = 0, .batch = 2}, "forward", false, seed += 20));
    check_op(recurrent(op, {.seq = 2, .batch = 0}, "bidirectional", false, seed += 20));
    check_op(recurrent(op, {.seq = 2, .batch = 2, .input = 0}, "forward", false, seed += 20));
  }
}

// By hand: a unit that sums its inputs, one with open gates, and one that keeps its state.
TEST_CASE("recurrent/by_hand") {
  const auto run = [](const std::string& op, Strings activations, std::vector<float> w, std::vector<float> r,
                      const std::string& direction, std::vector<std::int32_t> lens) {
    OpCase c{.op = op,
             .opset = 22,
             .attributes = {{"hidden_size", std::int64_t{1}}, {"direction", direction}, {"activations", activations}},
             .inputs = {Tensor::of<float>({3, 2, 1}, {1, 2, 3, 4, 5, 6}),
                        Tensor::of<float>({1, static_cast<std::int64_t>(w.size()), 1}, w),
                        Tensor::of<float>({1, static_cast<std::int64_t>(r.size()), 1}, r), Tensor(), lengths(lens)},
             .outputs = 2};
    std::vector<float> all;
    for (const Tensor& y : run_op(c)) all.insert(all.end(), y.values<float>().begin(), y.values<float>().end());
    return all;
  };
  using Floats = std::vector<float>;
  CHECK(run("RNN", {"Relu"}, {1}, {1}, "forward", {3, 2}) == Floats{1, 2, 4, 6, 9, 0, 9, 6});
  CHECK(run("RNN", {"Relu"}, {1}, {1}, "reverse", {3, 2}) == Floats{9, 6, 8, 4, 5, 0, 9, 6});
  CHECK(run("RNN", {"Relu"}, {1}, {1}, "forward", {0, 1}) == Floats{0, 2, 0, 0, 0, 0, 0, 2});
  // i = o = f = 1: the sum of the inputs.
  CHECK(run("LSTM", {"HardSigmoid", "Relu", "Relu"}, {9, 9, 9, 1}, {0, 0, 0, 0}, "forward", {3, 3}) ==
        Floats{1, 2, 4, 6, 9, 12, 9, 12});
  // z = 1: ignores the input.
  CHECK(run("GRU", {"HardSigmoid", "Relu"}, {9, 9, 1}, {0, 0, 0}, "forward", {3, 3}) == Floats(8, 0));
}

TEST_CASE("recurrent/nan_and_infinity") {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  unsigned seed = 1400;
  for (const char* op : all_ops)
    for (const float value : {nan, inf, -inf}) {
      // A NaN in entry 1 at time 2 affects only later steps of that entry.
      OpCase c = recurrent(op, {}, "bidirectional", false, seed += 20);
      c.inputs[0].values<float>()[(2 * 3 + 1) * 7 + 4] = value;
      check_op(c);
      // Data after the end of a sequence is not read.
      c.inputs[4] = lengths({5, 2, 5});
      check_op(c);
      c.attributes.emplace_back("clip", 3.0);
      check_op(c);
    }
}

// CUDA's candidates, without a device: Gemm's kernel for X times W, in TF32 if the build has it, and refusals.
TEST_CASE("recurrent/cuda_offers") {
  const auto offer = [](const Shape& x, std::int64_t hidden, bool known, const Numerics& numerics = {}) {
    Tensor weights[3];
    const std::vector<Shape> shapes{x, {1, hidden, x[2]}, {1, hidden, hidden}};
    std::vector<InputInfo> infos;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      infos.push_back({.present = true, .type = {DType::f32, shapes[i]}});
      if (known && i > 0) infos[i].constant = &(weights[i] = random_f32(shapes[i], 7));
    }
    const Problem problem(lenslet::make_op("RNN", "", {}, 3), infos);
    Target target{.device = reference_gpu()};
    target.numerics = numerics;
    const Kernel& kernel = *kernels_of("RNN", DeviceKind::cuda).front();
    Offer made = kernel.offer(problem, target);
    for (const Candidate& candidate : made.candidates) {
      CHECK(kernel.bind({problem, candidate, target.device})->workspace_bytes() == candidate.workspace_bytes);
      CHECK(candidate.estimated_us > static_cast<double>(x[0]) * target.device.launch_us);
    }
    return made;
  };
  const Offer few = offer({4, 2, 32}, 16, true), many = offer({100, 8, 32}, 16, false);
  CHECK(few.candidates.at(0).config == "kernel=few_rows split_k=8");
  CHECK(few.candidates[0].workspace_bytes < many.candidates.at(0).workspace_bytes);
  const Numerics tf32{.multiply = Numerics::Multiply::tf32};
  const Candidate rounded = offer({100, 8, 32}, 16, false, tf32).candidates.at(0);
  CHECK((rounded.config.find("tf32=yes") != std::string::npos) ==
        (rounded.tolerance > 4 * many.candidates[0].tolerance));
  CHECK(offer({4, 2, 8}, (1 << 18) + 1, false).refusal == "hidden_size 262145 exceeds 2^18");
  CHECK(offer({std::int64_t{1} << 16, std::int64_t{1} << 15, 1}, 1, false).refusal.find("too large") !=
        std::string::npos);
}

TEST_CASE("recurrent/refused") {
  const OpCase good = recurrent("LSTM", {}, "forward", false, 1800);
  CHECK(refusal(good).empty());
  const auto with = [&](const char* name, AttributeValue value) {
    OpCase c = good;
    c.attributes.emplace_back(name, std::move(value));
    return infer_error(c);
  };
  CHECK(with("clip", -1.0) == ErrorKind::invalid_model);
  CHECK(with("activations", Strings{"Sigmoid", "Tanh"}) == ErrorKind::invalid_model);
  CHECK(with("activations", Strings{"Sigmoid", "Tanh", "Gelu"}) == ErrorKind::invalid_model);
  CHECK(with("activations", std::string("Tanh")) == ErrorKind::invalid_model);
  CHECK(with("linear_before_reset", std::int64_t{1}) == ErrorKind::unsupported);
  OpCase c = good;
  c.attributes[0].second = std::int64_t{5};  // hidden_size
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  c = good;
  c.attributes[1].second = std::string("sideways");
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  c.attributes[1].second = std::string("bidirectional");  // W of one direction
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  c = good;
  c.attributes[2].second = std::int64_t{2};  // layout
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  c.attributes[2].second = std::int64_t{1};  // of the other states
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  for (std::size_t i = 0; i < 3; ++i) {
    c = good;
    c.inputs[i] = random_f32({2, 3}, 1);
    CHECK(infer_error(c) != ErrorKind::internal);
  }
  for (std::size_t i = 3; i < 8; ++i) {
    c = good;
    c.inputs[i] = i == 4 ? lengths({1, 2}) : random_f32({2, 3}, 1);
    CHECK_MESSAGE(infer_error(c) == ErrorKind::invalid_model, i);
  }
  c = good;
  c.inputs[4] = random_f32({3}, 1);
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  c.constant = {4};
  for (const std::int32_t wrong : {-1, 6}) {
    c.inputs[4] = lengths({1, wrong, 5});
    CHECK(infer_error(c) == ErrorKind::invalid_model);
  }
  // Computed lengths are known only in the run.
  c.constant = {};
  if (op_runner().device() == DeviceKind::cpu)
    CHECK_ERROR(run_op(c), invalid_argument, "sequence_lens holds 6, which is outside [0,5]");
}

}  // namespace lenslet::test
