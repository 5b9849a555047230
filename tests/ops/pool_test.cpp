#include "ops/pool/pool.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/ops/op_harness.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

struct PoolCase {
  Shape x;
  Ints kernel, strides, pads, dilations;
  const char* auto_pad = "NOTSET";
  bool ceil = false;
};

const PoolCase cases[] = {
    {{2, 3, 13, 9}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {}},
    {{1, 16, 15, 15}, {2, 2}, {2, 2}, {}, {}},
    {{1, 17, 7, 61}, {3, 5}, {1, 3}, {0, 2, 1, 1}, {}},
    {{3, 64, 8, 8}, {3, 3}, {2, 2}, {}, {}, "NOTSET", true},
    {{1, 5, 6, 6}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {}, "NOTSET", true},
    {{1, 1, 2, 2}, {3, 3}, {3, 3}, {1, 1, 1, 1}, {}, "NOTSET", true},
    {{2, 13, 9, 7}, {2, 2}, {2, 2}, {}, {}, "SAME_UPPER"},
    {{2, 13, 9, 7}, {4, 4}, {3, 2}, {}, {}, "SAME_LOWER"},
    {{2, 13, 9, 7}, {3, 2}, {2, 2}, {}, {}, "VALID"},
    {{1, 7, 13, 11}, {2, 3}, {1, 2}, {}, {3, 2}},
    {{1, 7, 13, 11}, {3, 3}, {2, 1}, {1, 2, 2, 1}, {2, 2}, "NOTSET", true},
    {{1, 3, 5, 5}, {5, 5}, {1, 1}, {2, 2, 2, 2}, {}},
    {{1, 6, 1, 1}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {}},
    {{1, 8, 112, 112}, {112, 112}, {}, {}, {}},
    {{2, 5, 33}, {3}, {2}, {1, 0}, {}},
    {{2, 5, 33}, {4}, {3}, {}, {2}, "NOTSET", true},
    {{1, 3, 5, 7, 6}, {2, 3, 2}, {1, 2, 2}, {1, 1, 0, 0, 1, 1}, {}},
    {{1, 1, 1, 3}, {1, 2}, {1, 1}, {0, 1, 0, 1}, {1, 2}},
};

AttributeList attributes_of(const PoolCase& c) {
  AttributeList list{{"kernel_shape", c.kernel}, {"auto_pad", std::string(c.auto_pad)}};
  if (!c.strides.empty()) list.emplace_back("strides", c.strides);
  if (!c.pads.empty()) list.emplace_back("pads", c.pads);
  if (!c.dilations.empty()) list.emplace_back("dilations", c.dilations);
  list.emplace_back("ceil_mode", std::int64_t{c.ceil ? 1 : 0});
  return list;
}

}  // namespace

TEST_CASE("pool/max") {
  unsigned seed = 1;
  for (const PoolCase& c : cases)
    for (const std::size_t outputs : {std::size_t{1}, std::size_t{2}})
      check_op({.op = "MaxPool",
                .attributes = attributes_of(c),
                .inputs = {random_f32(c.x, seed++, -3)},
                .outputs = outputs});
  for (const DType dtype : {DType::u8, DType::i8})
    check_op({.op = "MaxPool",
              .attributes = attributes_of(cases[0]),
              .inputs = {random_of(dtype, cases[0].x, seed++, 0, 100)}});
}

TEST_CASE("pool/average") {
  unsigned seed = 100;
  for (const PoolCase& c : cases)
    for (const std::int64_t include : {0, 1}) {
      AttributeList attributes = attributes_of(c);
      attributes.emplace_back("count_include_pad", include);
      check_op({.op = "AveragePool",
                .opset = 19,
                .attributes = attributes,
                .inputs = {random_f32(c.x, seed++, 3)},
                .tolerance = 1e-6});
    }
}

TEST_CASE("pool/ceil_mode_counts_as_onnxruntime_does") {
  // The third window would begin in the trailing pad: it is left out.
  const PoolProblem p = resolve_pool({1, 1, 2, 2}, {{3, 3}, {3, 3}, {}, {1, 1, 1, 1}, AutoPad::notset, true});
  CHECK(p.out[1] == 1);
  CHECK(resolve_pool({1, 1, 4, 4}, {{3, 3}, {2, 2}, {}, {}, AutoPad::notset, true}).out[2] == 2);
  CHECK(resolve_pool({1, 1, 4, 4}, {{3, 3}, {2, 2}, {}, {}, AutoPad::notset, false}).out[2] == 1);
}

// The product of such a window's sides does not fit 64 bits in the last cases.
TEST_CASE("pool/windows_far_larger_than_the_image") {
  constexpr std::int64_t side = std::int64_t{1} << 30;
  // Of ones, so that every maximum is 1 and every average between 0 and 1.
  const auto check = [](const char* op, Shape x, AttributeList attributes, float low, float high) {
    attributes.emplace_back("auto_pad", std::string("SAME_UPPER"));
    Tensor ones(DType::f32, x);
    for (float& value : ones.values<float>()) value = 1;
    const Tensor y = run_op({.op = op, .opset = 19, .attributes = attributes, .inputs = {ones}})[0];
    for (const float value : y.values<float>()) CHECK((value >= low && value <= high));
  };
  const AttributeList window{{"kernel_shape", Ints{side, side}}}, cube{{"kernel_shape", Ints{side, side, side}}};
  for (const Shape& x : {Shape{1, 1, 4, 4}, Shape{1, 3, 8, 8}, Shape{2, 2, 16, 3}}) {
    check("MaxPool", x, window, 1, 1);
    check("AveragePool", x, window, 1, 1);
  }
  check("AveragePool", {1, 2, 2, 3, 4}, cube, 1, 1);
  AttributeList with_pads = cube;
  with_pads.emplace_back("count_include_pad", std::int64_t{1});
  check("AveragePool", {1, 2, 2, 3, 4}, with_pads, 0, 1e-20F);
}

TEST_CASE("pool/global") {
  unsigned seed = 200;
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"})
    for (const Shape& x : {Shape{2, 3, 13, 9}, Shape{1, 130, 7, 7}, Shape{1, 8, 112, 112}, Shape{3, 5, 1, 1},
                           Shape{2, 4, 33}, Shape{1, 3, 4, 5, 6}})
      // A mean far from zero: single precision sums of 12544 values would miss this tolerance.
      check_op({.op = op, .inputs = {random_f32(x, seed++, 100)}, .tolerance = 1e-7});
}

TEST_CASE("pool/refusals") {
  const auto message = [](const char* op, Shape x, AttributeList attributes, std::size_t outputs = 1) {
    try {
      infer_op({.op = op, .attributes = std::move(attributes), .inputs = {Tensor(DType::f32, x)}, .outputs = outputs});
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  const Shape x{1, 3, 8, 8};
  const Ints k3{3, 3};
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(message("MaxPool", x, {}), "kernel_shape");
  has(message("MaxPool", x, {{"kernel_shape", Ints{3}}}), "kernel_shape");
  has(message("MaxPool", x, {{"kernel_shape", Ints{3, 0}}}), "kernel_shape");
  has(message("MaxPool", x, {{"kernel_shape", k3}, {"strides", Ints{0, 1}}}), "strides");
  has(message("MaxPool", x, {{"kernel_shape", k3}, {"strides", Ints{1}}}), "strides");
  has(message("MaxPool", x, {{"kernel_shape", k3}, {"pads", Ints{3, 0, 0, 0}}}), "pads");
  has(message("MaxPool", x, {{"kernel_shape", k3}, {"pads", Ints{-1, 0, 0, 0}}}), "pads");
  has(message("MaxPool", x, {{"kernel_shape", Ints{9, 9}}}), "does not fit");
  has(message("MaxPool", x, {{"kernel_shape", Ints{std::int64_t{1} << 62, 1}}}), "kernel_shape");
  has(message("MaxPool", x, {{"kernel_shape", k3}, {"auto_pad", std::string("SAME")}}), "auto_pad");
  has(message("MaxPool", x, {{"kernel_shape", k3}, {"storage_order", std::int64_t{1}}}, 2), "storage_order");
  has(message("AveragePool", {3, 8}, {{"kernel_shape", Ints{}}}), "kernel_shape");
  has(message("GlobalAveragePool", {3, 8}, {}), "rank");
  has(message("GlobalMaxPool", {1, 3, 0, 8}, {}), "empty");
}

TEST_CASE("lrn/sizes_and_exponents") {
  unsigned seed = 300;
  for (const Shape& x : {Shape{2, 13, 5, 7}, Shape{1, 3, 9, 9}, Shape{1, 64, 3, 3}, Shape{2, 9, 1, 1}, Shape{1, 7, 11}})
    for (const std::int64_t size : {1, 3, 4, 5})
      for (const double beta : {0.75, 0.5, 1.3})
        check_op({.op = "LRN",
                  .attributes = {{"size", size}, {"alpha", 0.5}, {"beta", beta}, {"bias", 2.0}},
                  .inputs = {random_f32(x, seed++, 0, 3)},
                  .tolerance = 1e-6});
}
