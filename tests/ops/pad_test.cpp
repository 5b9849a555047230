// Pad in both forms, every mode, cropping, both layouts and several element types, compared with the oracle.

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>

#include "tests/expect_error.h"
#include "tests/ops/op_runner.h"

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
  if (!value.empty()) c.maybe_constant = {2};
  if (!value.empty() || !axes.empty()) c.inputs.push_back(std::move(value));
  if (!axes.empty()) {
    c.inputs.push_back(std::move(axes));
    c.constant.push_back(3);
  }
  return c;
}

void refused(ErrorKind kind, const std::string& part, const OpCase& c) {
  check_error(kind, part, [&] { infer_op(c); });
}

}  // namespace

TEST_CASE("pad/every_mode") {
  const Tensor x = random_f32({2, 3, 5, 4}, 1);
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    check_op(input_form(x, int64s({0, 0, 1, 2, 0, 0, 3, 1}), mode));
    check_op(input_form(x, int64s({1, 2, 0, 0, 1, 1, 0, 0}), mode));
    check_op(input_form(x, int64s({0, 0, -1, 2, 0, 0, 3, -2}), mode));    // crop one side, pad the other
    check_op(input_form(x, int64s({0, -1, -2, -1, -1, 0, 0, 0}), mode));  // crop only
    check_op(input_form(x, int64s({0, 0, 11, 9, 0, 0, 13, 10}), mode));   // wraps more than once
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

TEST_CASE("pad/added_zeros") {
  const auto zeros = [](const OpCase& c) { return make_op(c)->added_zeros(infos_of(c.inputs, c.constant)); };
  const Tensor x = random_f32({2, 3, 5, 6}, 1), line = random_f32({2, 3, 5}, 1);
  const Tensor zero = Tensor::of<float>({}, {0}), one = Tensor::of<float>({}, {1});
  const OpCase around = input_form(x, int64s({0, 0, 1, 2, 0, 0, 3, 4}), "constant");
  CHECK(zeros(around) == Integers{1, 2, 3, 4});
  CHECK(zeros(attribute_form(line, {0, 0, 1, 0, 0, 2}, "constant")) == Integers{1, 2});
  CHECK(zeros(input_form(x, int64s({1, 2}), "constant", {}, int64s({-1}))) == Integers{0, 1, 0, 2});
  OpCase valued = input_form(x, int64s({0, 0, 1, 2, 0, 0, 3, 4}), "constant", zero);
  CHECK_FALSE(zeros(valued).has_value());  // computed by the run
  valued.constant = {1, 2};
  CHECK(zeros(valued) == Integers{1, 2, 3, 4});
  valued.inputs[2] = one;
  CHECK_FALSE(zeros(valued).has_value());
  CHECK_FALSE(zeros(attribute_form(x, {0, 0, 1, 2, 0, 0, 3, 4}, "constant", 0.5)).has_value());
  CHECK_FALSE(zeros(attribute_form(x, {0, 0, 1, 2, 0, 0, 3, 4}, "edge")).has_value());
  CHECK_FALSE(zeros(attribute_form(x, {0, 1, 1, 2, 0, 0, 3, 4}, "constant")).has_value());
  CHECK_FALSE(zeros(attribute_form(x, {0, 0, -1, 2, 0, 0, 3, 4}, "constant")).has_value());
  CHECK_FALSE(zeros(attribute_form(random_f32({2, 3}, 1), {0, 0, 0, 0}, "constant")).has_value());
}

TEST_CASE("pad/gives_its_input_back_when_it_adds_nothing") {
  const auto same = [](Integers pads) {
    const OpCase c = attribute_form(random_f32({2, 3}, 1), std::move(pads), "reflect");
    return make_op(c)->gives_input_back(infos_of(c.inputs, {}));
  };
  CHECK(same({0, 0, 0, 0}));
  CHECK_FALSE(same({0, 1, 0, -1}));
}

TEST_CASE("pad/on_moved_axes") {
  const Tensor x = random_f32({2, 5, 6, 3}, 1);
  const auto moved = [](const OpCase& c) {
    const auto op = make_op(c)->permuted(std::vector<int>{0, 2, 3, 1}, infos_of(c.inputs, c.constant));
    if (!op) return std::string();
    CHECK(op->inputs.size() == 1);
    CHECK_FALSE(op->same_result);
    return to_string(op->op->attributes());
  };
  const std::string pads = "pads=[0,7,1,2,0,8,3,4] value=";
  CHECK(moved(attribute_form(x, {0, 1, 2, 7, 0, 3, 4, 8}, "edge")) == "mode=edge " + pads + "0");
  CHECK(moved(input_form(x, int64s({1, 2, 7, 3, 4, 8}), "constant", {}, int64s({1, 2, 3}))) ==
        "mode=constant " + pads + "0");
  OpCase valued = input_form(x, int64s({0, 1, 2, 7, 0, 3, 4, 8}), "constant", Tensor::of<float>({}, {-3.25F}));
  CHECK(moved(valued).empty());  // computed by the run
  valued.constant = {1, 2};
  CHECK(moved(valued) == "mode=constant " + pads + "-3.25");
  valued.inputs[2] = Tensor::of<float>({}, {-0.0F});
  CHECK(moved(valued).empty());  // its sign would be lost
}

TEST_CASE("pad/pads_that_are_computed_or_cut_more_than_there_is_are_refused") {
  const Tensor x = random_f32({2, 3, 5, 4}, 11);
  OpCase unknown = input_form(x, int64s({0, 0, 1, 1, 0, 0, 1, 1}), "constant");
  unknown.constant.clear();
  refused(ErrorKind::unsupported, "computed from data", unknown);
  refused(ErrorKind::invalid_model, "3 pads", input_form(x, int64s({0, 0, 1}), "constant"));
  refused(ErrorKind::invalid_model, "cut more", input_form(x, int64s({0, 0, -3, 0, 0, 0, -3, 0}), "constant"));
  refused(ErrorKind::invalid_model, "cut more",
          input_form(x, int64s({0, 0, std::numeric_limits<std::int64_t>::min(), 0, 0, 0, 9, 0}), "constant"));
  refused(ErrorKind::limit, "",
          input_form(x, int64s({0, 0, std::numeric_limits<std::int64_t>::max(), 0, 0, 0, 1, 0}), "constant"));
  refused(ErrorKind::invalid_model, "nothing to reflect", input_form(x, int64s({0, 0, -5, 0, 0, 0, 1, 0}), "reflect"));
  refused(ErrorKind::invalid_model, "mode", input_form(x, int64s({0, 0, 1, 1, 0, 0, 1, 1}), "mirror"));
  OpCase value = input_form(x, int64s({0, 0, 1, 1, 0, 0, 1, 1}), "constant", Tensor::of<float>({2}, {1, 2}));
  refused(ErrorKind::invalid_model, "one element", value);
}

TEST_CASE("pad/refused_on_cuda") {
  const Tensor x = random_f32({3, 4}, 12), pads = int64s({1, 0, 0, 2}), value = Tensor::of<float>({}, {2});
  const auto refusal = [&](const std::vector<int>& constant) {
    const OpCase c = input_form(x, pads, "constant", value);
    const Problem problem(make_op(c), infos_of(c.inputs, constant));
    return kernels_of("Pad", DeviceKind::cuda).front()->offer(problem, {.device = reference_gpu()}).refusal;
  };
  CHECK(refusal({1, 2}).empty());
  CHECK(refusal({1}) == "the constant value is computed by the run");
}

}  // namespace lenslet::test
