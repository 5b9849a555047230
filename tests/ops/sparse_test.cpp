// SparseConv: cases compared with the oracle, results by hand, and refusals.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <random>

#include "base/thread_pool.h"
#include "ops/core/kernel.h"
#include "ops/core/sum_tolerance.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/sparse_sites.h"

namespace lenslet::test {
namespace {

/// A convolution over random sites; `kind` as in SparseConv.
OpCase conv_case(const char* kind, const Ints& size, const Ints& kernel, std::int64_t channels, std::int64_t filters,
                 double fill, unsigned seed, const Attributes& more = {}) {
  std::mt19937 random(seed);
  const std::vector<Site> sites = draw_sites(random, 2, size, fill);
  const auto bound = static_cast<std::int64_t>(sites.size()) + 3;
  const Tensor indices = indices_of(sites, bound, size.size());
  const bool submanifold = std::string_view(kind) == "submanifold", inverse = std::string_view(kind) == "inverse";
  const std::vector<Tensor> book =
      run_op(rulebook_case(submanifold ? "submanifold" : "regular", size, kernel, indices, 2, more));
  std::vector<std::int64_t> w{filters, channels};
  w.insert(w.end(), kernel.begin(), kernel.end());
  const std::size_t inputs = static_cast<std::size_t>(book[0].values<std::int32_t>()[inverse ? 1 : 0]);
  const std::int64_t most_inputs = inverse ? book[1].shape()[0] : bound;
  return {.op = "SparseConv",
          .domain = "lenslet",
          .attributes = {{"kind", std::string(kind)}},
          .inputs = {features_of(inputs, most_inputs, channels, seed), book[0],
                     random_f32(Shape(std::span<const std::int64_t>(w)), seed + 1),
                     submanifold ? Tensor()
                     : inverse   ? indices
                                 : book[1],
                     random_f32({filters}, seed + 2)},
          .maybe_constant = {2, 4},
          .tolerance = sum_tolerance(channels * kernel[0] * kernel[1] * (kernel.size() == 3 ? kernel[2] : 1))};
}

}  // namespace

TEST_CASE("sparse/conv/cases") {
  unsigned seed = 1;
  for (const auto& [channels, filters] : std::vector<std::pair<int, int>>{{1, 1}, {4, 16}, {13, 7}, {16, 33}, {37, 24}})
    for (const char* const kind : {"submanifold", "regular", "inverse"}) {
      OpCase c = conv_case(kind, {4, 7, 6}, {3, 3, 3}, channels, filters, 0.3, seed += 3);
      check_op(c);
      c.inputs.pop_back();  // without a bias
      c.maybe_constant = {2};
      check_op(c);
    }
  check_op(conv_case("submanifold", {40, 60}, {5, 3}, 8, 8, 0.5, 77));  // several blocks
  check_op(conv_case("regular", {40, 60}, {2, 4}, 8, 8, 0.5, 78, strides({2, 2})));
  check_op(conv_case("inverse", {9, 9}, {3, 1}, 5, 40, 0.5, 79, strides({2, 1})));
  check_op(conv_case("submanifold", {3, 3, 3}, {3, 3, 3}, 4, 4, 0.0, 80));  // no sites
  check_op(conv_case("regular", {3, 3, 3}, {3, 3, 3}, 4, 4, 1.0, 81));      // all
}

TEST_CASE("sparse/conv/features_and_rulebooks_of_other_shapes_are_refused") {
  const OpCase good = conv_case("regular", {4, 5}, {3, 3}, 3, 4, 0.5, 1);
  const auto error = [&](const auto& change) {
    OpCase c = good;
    change(c);
    return infer_error(c);
  };
  CHECK(error([](OpCase& c) { c.attributes[0].second = std::string("dense"); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.attributes.emplace_back("activation", std::string("relu")); }) ==
        ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[0] = Tensor(DType::f32, {5, 4}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[0] = Tensor(DType::f16, {5, 3}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::i32, {11}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::i32, {13}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::i64, {12}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f32, {4, 3, 3, 7}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f32, {0, 3, 3, 3}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) {
          c.inputs[0] = Tensor(DType::f32, {5, 0});
          c.inputs[2] = Tensor(DType::f32, {4, 0, 3, 3});
        }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f32, {4, 3, 3}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[3] = Tensor(); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[3] = Tensor(DType::i32, {5, 4}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[4] = Tensor(DType::f32, {5}); }) == ErrorKind::invalid_model);
}

// A rulebook may come from a file: whatever it contains, nothing outside x and y is accessed.
TEST_CASE("sparse/conv/rulebooks_that_lie") {
  const OpCase good = conv_case("regular", {6, 6}, {3, 3}, 2, 2, 0.5, 5);
  const auto pairs = static_cast<std::size_t>(12);
  // A device detects it during the computation, and has one message for it.
  const bool on_device = op_runner().device() == DeviceKind::cuda;
  const auto says = [&](const std::string& text, const char* part) {
    return contains(text, on_device ? "the rulebook is none of 9 taps that leads from at most" : part);
  };
  const auto error = [&](std::size_t at, std::int32_t value) {
    OpCase c = good;
    c.inputs[1] = good.inputs[1].clone();
    c.inputs[1].values<std::int32_t>()[at] = value;
    c.constant = {2};
    const std::string fast = run_error(c);
    c.constant = {};  // the other kernel
    CHECK(run_error(c) == fast);
    return fast;
  };
  CHECK(says(error(0, 1 << 20), "the rulebook leads from"));
  CHECK(says(error(0, -1), "the rulebook leads from"));
  CHECK(says(error(1, 1 << 20), "the rulebook leads from"));
  CHECK(says(error(2, 1), "the rulebook is none of 9 taps"));
  CHECK(says(error(5, -7), "the rulebook is none of 9 taps"));
  CHECK(says(error(11, 1 << 30), "the rulebook is none of 9 taps"));
  CHECK(says(error(pairs, 1 << 20), "of sites that are not"));
  CHECK(says(error(pairs, -1), "of sites that are not"));
}

// The results of the fusion passes: scales on the filters, a residual that y may overwrite, an activation.
TEST_CASE("sparse/conv/epilogue") {
  for (const char* const kind : {"submanifold", "regular"})
    for (const char* const activation : {"relu", "silu", "clip"}) {
      OpCase c = conv_case(kind, {6, 7, 5}, {3, 3, 3}, 8, 13, 0.4, 21);
      std::vector<double> scale(13);
      for (std::size_t k = 0; k < scale.size(); ++k) scale[k] = 0.5 + static_cast<double>(k % 4);
      const auto rows = c.inputs[3].empty() ? c.inputs[0].shape()[0] : c.inputs[3].shape()[0];
      c.inputs.push_back(random_f32({rows, 13}, 99));
      c.constant = {2, 4};
      const std::shared_ptr<const Op> op = make_normalised_op("SparseConv",
                                                              {{"kind", std::string(kind)},
                                                               {"activation", std::string(activation)},
                                                               {"activation_alpha", -0.5},
                                                               {"activation_beta", 1.5},
                                                               {"weight_scale", scale}},
                                                              6);
      const std::vector<InputInfo> infos = infos_of(c.inputs, c.constant);
      const Problem problem(op, infos);
      const ConvData judged = judged_by_oracle("SparseConv", op->attributes(), c.inputs);
      int calls = 0;
      const OpRunner& runner = op_runner();
      for (const Kernel* kernel : kernels_of("SparseConv", runner.device()))
        for_each_call(runner, problem, *kernel, 3, [&](const Call& call) {
          ++calls;
          compare(run_between_guards(runner, call, c.inputs, call.str())[0], judged, call.candidate.tolerance,
                  call.str());
        });
      // Separate and over the residual: two kernels and three numbers of threads, or, on a device, three kernels.
      CHECK(calls == (runner.device() == DeviceKind::cpu ? 12 : 6));
    }
}

}  // namespace lenslet::test
