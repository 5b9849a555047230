// NaN and infinities at every position of jointly read elements reach the same outputs as in the oracle, on each
// device, in each format, and with each instruction set.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/simd/targets.h"
// After targets.h:
#include <hwy/highway.h>

#include "oracle/oracle.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

using Ints = std::vector<std::int64_t>;
constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

constexpr auto* check_sets = check_op_on_every_instruction_set;

/// Sanitizers check memory and threads, for which one value is enough.
std::vector<float> values() {
  if (std::getenv("LENSLET_TEST_REDUCED") != nullptr) return {nan};
  return {nan, -nan, inf, -inf};
}

/// [P + 1, part...] of random numbers, P the elements of `part`: part i has `value` at position i, the last one
/// nowhere.
Tensor in_each_position(const Shape& part, float value, unsigned seed) {
  const std::int64_t elems = part.elems();
  Ints dims{elems + 1};
  dims.insert(dims.end(), part.dims().begin(), part.dims().end());
  Tensor x = random_f32(Shape(dims), seed, 0.5);
  for (std::int64_t i = 0; i < elems; ++i) x.values<float>()[static_cast<std::size_t>(i * elems + i)] = value;
  return x;
}

struct LargeOnes {
  Tensor rows, few, columns;
};
/// For CUDA: rows with a thread each, and rows and columns shared by several blocks. The CPU needs fewer: a thread
/// takes many rows, and long ones are split. The last of the few has no such value.
LargeOnes large_ones(float value, unsigned& seed) {
  const bool cpu = op_runner().device() == DeviceKind::cpu;
  const std::int64_t many = cpu ? 1 << 12 : 1 << 16, lines = cpu ? 3 : 8;
  LargeOnes x{random_f32({many, 7}, seed++, 0.5), random_f32({lines, 70000}, seed++, 0.5),
              random_f32({9000, 8}, seed++, 0.5)};
  for (std::int64_t i = 0; i < many; i += 3) x.rows.values<float>()[static_cast<std::size_t>(i * 7 + i % 7)] = value;
  for (std::int64_t i = 0; i < lines - 1; ++i)
    x.few.values<float>()[static_cast<std::size_t>(i * 70000 + (cpu ? 6 * i : i) * 69999 / 6)] = value;
  for (std::size_t i = 0; i < 7; ++i) x.columns.values<float>()[i * 8999 / 6 * 8 + i] = value;
  return x;
}

}  // namespace

TEST_CASE("nan/pools_give_a_nan_where_the_oracle_does") {
  struct Window {
    Shape image;
    Ints kernel, strides, pads, dilations;
    bool ceil = false;
  };
  const Window windows[] = {
      {{17, 3, 4}, {2, 2}, {1, 1}, {}, {}},
      {{2, 4, 14}, {2, 2}, {2, 2}, {}, {}},
      {{2, 4, 19}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {}},
      {{5, 4, 5}, {3, 2}, {1, 2}, {0, 1, 1, 0}, {2, 2}, true},
      {{4, 6, 5}, {5, 5}, {1, 1}, {2, 2, 2, 2}, {}},  // CUDA: a tile
      {{1, 6, 5}, {4, 4}, {4, 4}, {}, {}, true},      // any window
      {{3, 21}, {3}, {2}, {1, 1}, {}},
      {{2, 3, 4, 5}, {2, 3, 2}, {1, 2, 2}, {1, 1, 0, 0, 1, 1}, {}},
  };
  unsigned seed = 1;
  for (const float value : values()) {
    for (const Window& w : windows) {
      AttributeList attributes{{"kernel_shape", w.kernel}, {"strides", w.strides}, {"ceil_mode", std::int64_t{w.ceil}}};
      if (!w.pads.empty()) attributes.emplace_back("pads", w.pads);
      if (!w.dilations.empty()) attributes.emplace_back("dilations", w.dilations);
      const Tensor x = in_each_position(w.image, value, seed++);
      for (const std::size_t outputs : {std::size_t{1}, std::size_t{2}})
        check_sets({.op = "MaxPool", .attributes = attributes, .inputs = {x}, .outputs = outputs});
      for (const std::int64_t include : {0, 1}) {
        AttributeList average = attributes;
        average.emplace_back("count_include_pad", include);
        check_sets({.op = "AveragePool", .opset = 19, .attributes = average, .inputs = {x}, .tolerance = 1e-6});
      }
      for (const std::int64_t p : {1, 2, 3}) {
        AttributeList norm = attributes;
        norm.emplace_back("p", p);
        check_sets({.op = "LpPool", .opset = 18, .attributes = norm, .inputs = {x}, .tolerance = 1e-6});
      }
    }
    for (const Shape& image : {Shape{17, 2, 3}, Shape{1, 3, 19}, Shape{2, 33}})
      for (const char* op : {"GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"})
        check_sets({.op = op, .inputs = {in_each_position(image, value, seed++)}, .tolerance = 1e-6});
  }
}

TEST_CASE("nan/reductions_give_a_nan_where_the_oracle_does") {
  constexpr const char* kinds[] = {"ReduceSum", "ReduceMean", "ReduceMax",       "ReduceMin",    "ReduceProd",
                                   "ReduceL1",  "ReduceL2",   "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"};
  unsigned seed = 100;
  for (const float value : values())
    for (const auto& [part, axes] :
         std::vector<std::pair<Shape, std::vector<Ints>>>{{{3, 4, 5}, {{1}, {3}, {1, 3}, {2, 3}, {1, 2, 3}, {0}}},
                                                          {{67}, {{1}, {0}}},
                                                          {{3, 36}, {{1}, {2}, {0, 1}}}}) {
      const Tensor x = in_each_position(part, value, seed++);
      for (const char* op : kinds)
        for (const Ints& of : axes)
          check_op({.op = op, .opset = 11, .attributes = {{"axes", of}}, .inputs = {x}, .tolerance = 2e-6});
    }
  for (const float value : values()) {
    const auto [rows, few, columns] = large_ones(value, seed);
    for (const char* op : {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceLogSumExp"})
      for (const auto& [x, axis] : {std::pair<Tensor, std::int64_t>{rows, 1}, {few, 1}, {columns, 0}})
        check_op({.op = op, .opset = 11, .attributes = {{"axes", Ints{axis}}}, .inputs = {x}, .tolerance = 2e-6});
  }
}

// The first NaN, as in NumPy; the last one with select_last_index.
TEST_CASE("nan/arg_extreme") {
  unsigned seed = 200;
  for (const char* op : {"ArgMax", "ArgMin"})
    for (const std::int64_t last : {0, 1}) {
      const auto check = [&](Tensor x, std::int64_t axis) {
        check_op({.op = op, .attributes = {{"axis", axis}, {"select_last_index", last}}, .inputs = {std::move(x)}});
      };
      for (const float value : values()) {
        for (const std::int64_t axis : {0, 1, 2, 3}) check(in_each_position({3, 4, 5}, value, seed++), axis);
        for (const std::int64_t axis : {0, 1}) check(in_each_position({67}, value, seed++), axis);
        // Several of them, among numbers and their own negatives.
        Tensor x = in_each_position({36}, value, seed++);
        for (std::size_t i = 0; i + 5 < 36; ++i) x.values<float>()[i * 36 + i + 5] = i % 2 == 0 ? nan : -value;
        for (const std::int64_t axis : {0, 1}) check(x, axis);
        for (const Shape& shape : {Shape{5, 36}, Shape{36, 8}, Shape{3, 7}}) {
          Tensor only(DType::f32, shape);
          for (float& v : only.values<float>()) v = value;
          for (const std::int64_t axis : {0, 1}) check(only, axis);
        }
      }
      auto [rows, few, columns] = large_ones(nan, seed);
      for (std::int64_t i = 0; i + 1 < few.shape()[0]; ++i)
        few.values<float>()[static_cast<std::size_t>((i + 1) * 70000 - 1)] = nan;
      for (std::size_t i = 0; i < 7; ++i) columns.values<float>()[8999 * 8 + i] = nan;
      check(rows, 1);
      check(few, 1);
      check(columns, 0);
    }
}

TEST_CASE("nan/normalizations_give_a_nan_where_the_oracle_does") {
  unsigned seed = 300;
  for (const float value : values()) {
    for (const Shape& part : {Shape{37}, Shape{5, 19}, Shape{18, 2, 3}})
      for (const char* op : {"Softmax", "LogSoftmax"})
        for (std::int64_t axis = 0; axis <= part.rank(); ++axis)
          check_sets({.op = op,
                      .attributes = {{"axis", axis}},
                      .inputs = {in_each_position(part, value, seed++)},
                      .tolerance = 5e-6});
    // CUDA: rows and columns of every length have kernels of their own, and so do many short ones.
    const std::int64_t many = op_runner().device() == DeviceKind::cpu ? 1 << 10 : (1 << 16) + 3;
    for (const Shape& shape : {Shape{8, 9000}, Shape{8, 2000}, Shape{many, 7}, Shape{2, 50, 9}}) {
      Tensor x = random_f32(shape, seed++, 0.5);
      const std::int64_t length = shape[1], inner = shape.rank() > 2 ? shape[2] : 1;
      for (std::int64_t row = 0; row < 7; ++row)
        x.values<float>()[static_cast<std::size_t>(inner == 1 ? row * length + row * (length - 1) / 6
                                                              : row * (length - 1) / 6 * inner + row)] = value;
      for (const char* op : {"Softmax", "LogSoftmax"})
        check_sets({.op = op, .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x}, .tolerance = 5e-5});
    }
    const Tensor scale = random_f32({5}, seed++, 1), bias = random_f32({5}, seed++);
    const Tensor x = in_each_position({5, 3, 4}, value, seed++);
    check_sets({.op = "InstanceNormalization", .opset = 6, .inputs = {x, scale, bias}, .tolerance = 1e-5});
    check_sets({.op = "GroupNormalization",
                .opset = 21,
                .attributes = {{"num_groups", std::int64_t{1}}},
                .inputs = {x, scale, bias},
                .tolerance = 1e-5});
    for (const std::int64_t last : {0, 1})
      check_sets({.op = "GlobalResponseNorm",
                  .domain = "lenslet",
                  .opset = 0,
                  .attributes = {{"channels_last", last}},
                  .inputs = {x, random_f32({x.shape()[last == 1 ? 3 : 1]}, seed++),
                             random_f32({x.shape()[last == 1 ? 3 : 1]}, seed++)},
                  .tolerance = 1e-5});
    // In nhwc, too, where CUDA holds an image in several blocks.
    Tensor images = random_f32({4, 16, 24, 25}, seed++);
    for (const std::size_t at : {0U, 9600U + 4321U, 2 * 9600U + 9599U}) images.values<float>()[at] = value;
    check_sets({.op = "GroupNormalization",
                .opset = 21,
                .attributes = {{"num_groups", std::int64_t{1}}},
                .inputs = {images, random_f32({16}, seed++, 1), random_f32({16}, seed++)},
                .tolerance = 1e-5});
    check_sets({.op = "BatchNormalization",
                .opset = 9,
                .inputs = {x, scale, bias, bias, random_of(DType::f32, {5}, seed++, 0.5, 1)},
                .maybe_constant = {1, 2, 3, 4},
                .tolerance = 1e-5});
    check_sets({.op = "LRN",
                .attributes = {{"size", std::int64_t{3}}, {"alpha", 0.5}, {"beta", 0.75}, {"bias", 2.0}},
                .inputs = {x},
                .tolerance = 1e-5});
    for (const std::int64_t length : {19, 9000}) {
      Tensor rows = random_f32({8, length}, seed++);
      for (std::int64_t row = 0; row < 7; ++row)
        rows.values<float>()[static_cast<std::size_t>(row * length + row * (length - 1) / 6)] = value;
      check_sets({.op = "LayerNormalization",
                  .opset = 17,
                  .inputs = {rows, random_f32({length}, seed++, 1), random_f32({length}, seed++)},
                  .outputs = std::isnan(value) ? std::size_t{3} : std::size_t{1},
                  .tolerance = 1e-5});
      check_sets({.op = "RMSNormalization",
                  .opset = 23,
                  .inputs = {rows, random_f32({length}, seed++, 1)},
                  .tolerance = 1e-5});
      for (const std::int64_t axis : {0, 1}) {
        check_sets({.op = "MeanVarianceNormalization",
                    .attributes = {{"axes", Ints{axis}}},
                    .inputs = {rows},
                    .tolerance = 1e-5});
        for (const std::int64_t p : {1, 2})
          check_sets(
              {.op = "LpNormalization", .attributes = {{"axis", axis}, {"p", p}}, .inputs = {rows}, .tolerance = 1e-5});
      }
    }
  }
}

TEST_CASE("nan/elementwise_gives_a_nan_where_the_oracle_does") {
  unsigned seed = 400;
  for (const float value : values()) {
    const Tensor x = in_each_position({37}, value, seed++), y = random_f32(x.shape(), seed++);
    for (const char* op : {"Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Abs", "Neg", "Floor", "Sign"})
      check_sets({.op = op, .opset = 14, .inputs = {x}, .tolerance = 2e-6});
    check_sets({.op = "Clip",
                .inputs = {x, Tensor::of<float>(Shape{}, {-1}), Tensor::of<float>(Shape{}, {1})},
                .maybe_constant = {1, 2}});
    for (const char* op : {"Max", "Min", "Sum", "Mean"}) {
      check_sets({.op = op, .inputs = {x, y}, .tolerance = 1e-6});
      check_sets({.op = op, .inputs = {y, x}, .tolerance = 1e-6});
      check_sets({.op = op, .inputs = {y, x, y}, .tolerance = 1e-6});
    }
  }
}

TEST_CASE("nan/products_give_a_nan_where_the_oracle_does") {
  unsigned seed = 450;
  for (const float value : values()) {
    const Tensor x = in_each_position({19}, value, seed++), w = random_f32({37, 19}, seed++);
    for (const auto& [a, b] : {std::pair{x, w}, {w, x}})
      check_sets({.op = "Gemm",
                  .attributes = {{"transB", std::int64_t{1}}},
                  .inputs = {a, b},
                  .maybe_constant = {1},
                  .tolerance = 5e-6});
    check_sets({.op = "MatMul", .inputs = {x, random_f32({19, 37}, seed++)}, .maybe_constant = {1}, .tolerance = 5e-6});
  }
}

namespace {

/// Effects of one special element on a convolution's outputs.
struct Spread {
  std::int64_t wrong = 0;   ///< outputs that differ from the oracle, without NaNs within a tile
  std::int64_t spoilt = 0;  ///< NaN
};
Spread spread(std::span<const float> got, std::span<const double> exact, bool tiles) {
  Spread spread;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto y = static_cast<double>(got[i]);
    const bool same = std::isfinite(exact[i]) ? std::abs(y - exact[i]) < 1e-3
                                              : y == exact[i] || (std::isnan(y) && std::isnan(exact[i]));
    if (std::isnan(y)) ++spread.spoilt;
    if (!same && !(tiles && std::isnan(y))) ++spread.wrong;
  }
  return spread;
}

/// Calls check(outputs with `value` in the middle of an image, outputs that read it, whether the kernel has tiles) for
/// every kernel and each kind of fused activation.
template <typename F>
void check_convolutions(float value, const F& check) {
  unsigned seed = 500;
  for (const auto& [groups, window] : {std::pair<std::int64_t, std::int64_t>{1, 3}, {16, 3}, {1, 5}})
    for (const char* activation : {"none", "relu", "clip", "hard_swish"}) {
      const std::int64_t pad = window / 2, seeing = window * window * (groups == 1 ? 16 : 1);
      std::vector<Tensor> inputs{random_f32({2, 16, 11, 13}, seed++),
                                 random_f32({16, 16 / groups, window, window}, seed++), random_f32({16}, seed++)};
      inputs[0].values<float>()[16 * 11 * 13 + 3 * 11 * 13 + 5 * 13 + 6] = value;
      const auto op = make_normalised_op("Conv",
                                         {{"pads", Ints{pad, pad, pad, pad}},
                                          {"group", groups},
                                          {"activation", std::string(activation)},
                                          {"activation_alpha", 0.25},
                                          {"activation_beta", 0.5}},
                                         inputs.size());
      std::vector<oracle::Array> arrays;
      for (const Tensor& input : inputs) arrays.push_back(oracle::from_tensor(input));
      const std::vector<double> exact = oracle::run("Conv", op->attributes(), arrays, oracle::no_scale)->at(0).values;
      const std::vector<InputInfo> infos = infos_of(inputs, {1, 2});
      const Problem problem(op, infos, infer_types(*op, infos));
      on_every_instruction_set(HWY_TARGETS, [&, seeing = seeing] {
        for (const Kernel* kernel : kernels_of("Conv", op_runner().device()))
          for_each_call(op_runner(), problem, *kernel, 3, [&](const Call& call) {
            INFO(call.str());
            const Tensor y = run_between_guards(op_runner(), call, inputs, call.str())[0];
            const bool tiles = kernel->name().starts_with("winograd") || kernel->name() == "fft";
            check(spread(y.values<float>(), exact, tiles), seeing, tiles);
          });
      });
    }
}

}  // namespace

// A value spoils whole tiles of Winograd and fft, even if an output depends on a part only.
TEST_CASE("nan/convolutions/a_nan_reaches_the_outputs_that_see_it_and_no_other") {
  check_convolutions(nan, [](const Spread& spread, std::int64_t seeing, bool tiles) {
    CHECK(spread.wrong == 0);
    CHECK(spread.spoilt >= seeing);
    if (!tiles) CHECK(spread.spoilt == seeing);
  });
}

TEST_CASE("nan/convolutions/an_infinity_stays_one_or_becomes_nan_in_a_tile") {
  check_convolutions(inf, [](const Spread& spread, std::int64_t, bool) { CHECK(spread.wrong == 0); });
}

}  // namespace lenslet::test
