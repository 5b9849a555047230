// Pad in both forms, every mode, cropping, both layouts and several element types, against the oracle.

#include "ops/movement/pad.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>

#include "tests/ops/op_harness.h"

namespace lenslet::test {
namespace {

using Integers = std::vector<std::int64_t>;

OpCase attribute_form(Tensor x, Integers pads, const std::string& mode, double value = 0) {
  OpCase c;
  c.op = "Pad";
  c.opset = 9;
  c.attributes = {{"mode", mode}, {"pads", std::move(pads)}, {"value", value}};
  c.inputs = {std::move(x)};
  return c;
}

OpCase input_form(Tensor x, Tensor pads, const std::string& mode, Tensor value = {}, Tensor axes = {}) {
  OpCase c;
  c.op = "Pad";
  c.opset = axes.empty() && mode != "wrap" ? 13 : 19;
  c.attributes = {{"mode", mode}};
  c.inputs = {std::move(x), std::move(pads)};
  c.constant = {1};
  if (!value.empty() || !axes.empty()) c.inputs.push_back(std::move(value));
  if (!axes.empty()) {
    c.inputs.push_back(std::move(axes));
    c.constant.push_back(3);
  }
  return c;
}

void check_error(ErrorKind kind, const std::string& part, const OpCase& c) {
  try {
    infer_op(c);
    FAIL_CHECK("no error that says: ", part);
  } catch (const Error& error) {
    CHECK_MESSAGE(error.kind() == kind, error.what());
    CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what());
  }
}

}  // namespace

TEST_CASE("pad/every_mode") {
  const Tensor x = random_f32({2, 3, 5, 4}, 1);
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    check_op(input_form(x, int64s({0, 0, 1, 2, 0, 0, 3, 1}), mode));
    check_op(input_form(x, int64s({1, 2, 0, 0, 1, 1, 0, 0}), mode));
    check_op(input_form(x, int64s({0, 0, -1, 2, 0, 0, 3, -2}), mode));    // crop one side, pad the other
    check_op(input_form(x, int64s({0, -1, -2, -1, -1, 0, 0, 0}), mode));  // crop only
    check_op(input_form(x, int64s({0, 0, 11, 9, 0, 0, 13, 10}), mode));   // around more than once
    check_op(input_form(random_f32({1, 5, 1, 1}, 2), int64s({0, 0, 2, 1, 0, 0, 1, 3}), mode));
    check_op(input_form(random_f32({7}, 3), int64s({2, 3}), mode));
    check_op(input_form(random_f32({3, 4}, 4), int64s({0, 2, 1, 0}), mode));
    check_op(input_form(random_f32({2, 3, 4, 2, 3}, 5), int64s({0, 1, 0, 1, 0, 1, 0, 2, 0, 0}), mode));
  }
}

TEST_CASE("pad/attribute_form") {
  for (const char* mode : {"constant", "reflect", "edge"})
    check_op(attribute_form(random_f32({1, 2, 6, 7}, 6), {0, 0, 2, 1, 0, 0, 1, 3}, mode, 1.5));
}

TEST_CASE("pad/value_and_axes") {
  const Tensor x = random_f32({2, 3, 5, 4}, 7);
  const Tensor value = Tensor::of<float>({}, {-3.25F});
  check_op(input_form(x, int64s({0, 1, 1, 2, 0, 2, 3, 1}), "constant", value));
  check_op(input_form(x, int64s({1, 2, 0, 3}), "constant", value, int64s({-1, 2})));
  check_op(input_form(x, int64s({1, 2}), "reflect", {}, int64s({3})));
  check_op(input_form(x, int64s({}), "constant", value, int64s({})));
}

TEST_CASE("pad/element_types") {
  for (const DType dtype : {DType::i64, DType::f64, DType::i32, DType::f16, DType::u8, DType::boolean}) {
    const Tensor x = random_of(dtype, {2, 3, 4, 5}, 8, 0, 1);
    check_op(input_form(x, int64s({0, 1, 1, 2, 1, 0, -1, 1}), "constant"));
    check_op(input_form(x, int64s({0, 1, 1, 2, 1, 0, -1, 1}), "edge"));
  }
  check_op(input_form(random_of(DType::i64, {3, 4}, 9, -9, 9), int64s({1, 0, 0, 2}), "constant",
                      Tensor::of<std::int64_t>({1}, {-7})));
}

TEST_CASE("pad/whole_vectors") {
  for (const DType dtype : {DType::u8, DType::f16, DType::f32, DType::i64})
    for (const char* mode : {"constant", "reflect", "edge"}) {
      const Tensor x = random_of(dtype, {2, 32, 6, 5}, 13, 0, 100);
      check_op(input_form(x, int64s({0, 0, 1, 2, 0, 0, 3, 1}), mode));
      check_op(input_form(x, int64s({1, 16, 1, 0, 0, -16, 3, 0}), mode));
    }
}

TEST_CASE("pad/large_enough_for_several_pieces") {
  check_op(input_form(random_f32({2, 24, 56, 57}, 10), int64s({0, 0, 1, 1, 0, 0, 2, 2}), "constant"));
}

TEST_CASE("pad/explicit_step_before_a_convolution") {
  const auto op = make_explicit_pad(1, 2, 3, 4);
  const InputInfo x{true, {DType::f32, {2, 3, 5, 6}}, nullptr};
  CHECK(op->infer({&x, 1}).at(0).shape == Shape{2, 3, 9, 12});
  CHECK(op->runs_in(formats::nhwc, {&x, 1}));
  CHECK(to_string(op->attributes()) == "mode=constant pads=[0,0,1,2,0,0,3,4] value=0");
}

TEST_CASE("pad/refusals") {
  const Tensor x = random_f32({2, 3, 5, 4}, 11);
  OpCase unknown = input_form(x, int64s({0, 0, 1, 1, 0, 0, 1, 1}), "constant");
  unknown.constant.clear();
  check_error(ErrorKind::unsupported, "not known before the run", unknown);
  check_error(ErrorKind::invalid_model, "3 pads", input_form(x, int64s({0, 0, 1}), "constant"));
  check_error(ErrorKind::invalid_model, "cut more", input_form(x, int64s({0, 0, -3, 0, 0, 0, -3, 0}), "constant"));
  check_error(ErrorKind::invalid_model, "cut more",
              input_form(x, int64s({0, 0, std::numeric_limits<std::int64_t>::min(), 0, 0, 0, 9, 0}), "constant"));
  check_error(ErrorKind::limit, "",
              input_form(x, int64s({0, 0, std::numeric_limits<std::int64_t>::max(), 0, 0, 0, 1, 0}), "constant"));
  check_error(ErrorKind::invalid_model, "nothing to reflect",
              input_form(x, int64s({0, 0, -5, 0, 0, 0, 1, 0}), "reflect"));
  check_error(ErrorKind::invalid_model, "mode", input_form(x, int64s({0, 0, 1, 1, 0, 0, 1, 1}), "mirror"));
  OpCase value = input_form(x, int64s({0, 0, 1, 1, 0, 0, 1, 1}), "constant", Tensor::of<float>({2}, {1, 2}));
  check_error(ErrorKind::invalid_model, "one element", value);
}

TEST_CASE("pad/refused_on_cuda") {
  const Tensor x = random_f32({3, 4}, 12), pads = int64s({1, 0, 0, 2}), value = Tensor::of<float>({}, {2});
  const auto op = make_op(input_form(x, pads, "constant", value));
  std::vector<InputInfo> infos;
  for (const Tensor* input : {&x, &pads, &value}) infos.push_back({true, {input->dtype(), input->shape()}, input});
  CHECK_FALSE(op->refuse_cuda(infos).has_value());
  infos[2].constant = nullptr;
  CHECK(op->refuse_cuda(infos) == "the constant value is computed by the run");
}

}  // namespace lenslet::test
