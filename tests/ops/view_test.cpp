// Operators that only rename bytes.

#include <doctest/doctest.h>

#include <limits>

#include "tests/expect_error.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {

namespace {

using Ints = std::vector<std::int64_t>;

Shape inferred(const OpCase& c) { return infer_op(c)[0].shape; }

OpCase reshape(Shape from, Tensor shape, std::int64_t allow_zero = 0) {
  return {.op = "Reshape",
          .opset = 14,
          .attributes = {{"allowzero", allow_zero}},
          .inputs = {random_f32(from, 3), std::move(shape)},
          .constant = {1}};
}

}  // namespace

TEST_CASE("view/reshape") {
  check_op(reshape({2, 3, 4, 5}, int64s({2, 60})));
  check_op(reshape({2, 3, 4, 5}, int64s({0, -1})));
  check_op(reshape({2, 3, 4, 5}, int64s({-1})));
  check_op(reshape({2, 3, 4, 5}, int64s({5, 1, 0, -1, 1, 2})));
  check_op(reshape({1, 1}, Tensor::of<std::int64_t>(Shape{0}, {})));  // to a scalar
  check_op(reshape({0, 3}, int64s({3, 0}), 1));
  check_op(reshape({0, 3}, int64s({0, 7}), 0));  // copies the 0, and 0 * 7 is 0 too
  check_op(
      {.op = "Reshape", .opset = 5, .inputs = {random_of(DType::i64, {6}, 1, -9, 9), int64s({2, 3})}, .constant = {1}});
}

TEST_CASE("view/reshape_refusals") {
  CHECK(infer_error(reshape({2, 3}, int64s({4, 2}))) == ErrorKind::invalid_model);
  CHECK(infer_error(reshape({2, 3}, int64s({-1, -1}))) == ErrorKind::invalid_model);
  CHECK(infer_error(reshape({2, 3}, int64s({-1, 4}))) == ErrorKind::invalid_model);
  CHECK(infer_error(reshape({2, 3}, int64s({-2, 3}))) == ErrorKind::invalid_model);
  CHECK(infer_error(reshape({2, 3}, int64s({2, 3, 0}))) == ErrorKind::invalid_model);
  CHECK(infer_error(reshape({0, 3}, int64s({0, -1}), 1)) == ErrorKind::invalid_model);
  CHECK(infer_error(reshape({2, 3}, int64s({1, 1, 1, 1, 1, 1, 1, 1, 6}))) == ErrorKind::limit);
  CHECK(infer_error(reshape({2, 3}, int64s({std::int64_t{1} << 62, std::int64_t{1} << 62, 4}))) == ErrorKind::limit);
  CHECK(infer_error(reshape({2, 3}, random_f32({2}, 1))) == ErrorKind::invalid_model);
  OpCase computed = reshape({2, 3}, int64s({3, 2}));
  computed.constant = {};
  CHECK(infer_error(computed) == ErrorKind::unsupported);
}

TEST_CASE("view/flatten") {
  for (const std::int64_t axis : {-3, -1, 0, 1, 2, 4})
    check_op({.op = "Flatten", .attributes = {{"axis", axis}}, .inputs = {random_f32({2, 3, 4, 5}, 5)}});
  check_op({.op = "Flatten", .inputs = {random_f32({7}, 5)}});
  CHECK(inferred({.op = "Flatten", .attributes = {{"axis", 0}}, .inputs = {random_f32({}, 5)}}) == Shape{1, 1});
  CHECK(infer_error({.op = "Flatten", .attributes = {{"axis", 5}}, .inputs = {random_f32({2, 3}, 5)}}) ==
        ErrorKind::invalid_model);
}

TEST_CASE("view/squeeze") {
  const OpCase squeeze{.op = "Squeeze", .constant = {1}};
  check_op(
      {.op = "Squeeze", .opset = 11, .attributes = {{"axes", Ints{1, -1}}}, .inputs = {random_f32({2, 1, 3, 1}, 6)}});
  check_op({.op = "Squeeze", .opset = 11, .inputs = {random_f32({2, 1, 3, 1}, 6)}});
  check_op({.op = "Squeeze", .inputs = {random_f32({1, 7, 1, 1}, 6)}});
  check_op(with(squeeze, {random_f32({1, 7, 1, 1}, 6), int64s({-2})}));
  check_op({.op = "Squeeze", .inputs = {random_of(DType::i64, {1}, 6, -9, 9)}});
  CHECK(infer_error(with(squeeze, {random_f32({1, 7}, 6), int64s({1})})) == ErrorKind::invalid_model);
  CHECK(infer_error(with(squeeze, {random_f32({1, 7}, 6), int64s({0, -2})})) == ErrorKind::invalid_model);
  CHECK(infer_error(with(squeeze, {random_f32({1, 7}, 6), int64s({2})})) == ErrorKind::invalid_model);
}

TEST_CASE("view/unsqueeze") {
  const OpCase unsqueeze{.op = "Unsqueeze", .constant = {1}};
  check_op({.op = "Unsqueeze", .opset = 11, .attributes = {{"axes", Ints{0, 3}}}, .inputs = {random_f32({2, 3}, 7)}});
  check_op(with(unsqueeze, {random_f32({3, 4, 5}, 7), int64s({4, -5, 2})}));
  check_op(with(unsqueeze, {int64_scalar(5), int64_scalar(0)}));
  CHECK(infer_error(with(unsqueeze, {random_f32({3}, 7), int64s({1, 1})})) == ErrorKind::invalid_model);
  CHECK(infer_error(with(unsqueeze, {random_f32({3}, 7), int64s({0, 1, 2, 3, 4, 5, 6, 7})})) == ErrorKind::limit);
  CHECK_ERROR(make_op({.op = "Unsqueeze", .opset = 11, .inputs = {random_f32({3}, 7)}}), invalid_model,
              "attribute 'axes' is missing");
}

TEST_CASE("view/identity_and_dropout") {
  check_op({.op = "Identity", .inputs = {random_f32({2, 3, 5, 7}, 1)}});
  check_op({.op = "Identity", .inputs = {random_of(DType::i64, {3}, 2, -9, 9)}});
  for (const std::int64_t opset : {7, 10, 12, 13, 22})
    for (const std::size_t outputs : {1U, 2U}) {
      AttributeList attributes;
      if (opset < 12) attributes.emplace_back("ratio", 0.25);
      check_op({.op = "Dropout",
                .opset = opset,
                .attributes = attributes,
                .inputs = {random_f32({2, 3, 4, 5}, 8)},
                .outputs = outputs});
    }
  check_op({.op = "Dropout", .opset = 7, .inputs = {random_of(DType::f16, {7}, 8, -1, 1)}, .outputs = 2});
  Tensor training(DType::boolean, Shape{});
  *training.values<bool>().begin() = false;
  const Tensor ratio = Tensor::of<float>(Shape{}, {0.5F});
  const OpCase quiet{.op = "Dropout", .inputs = {random_f32({3}, 8), ratio, training}, .constant = {1, 2}};
  check_op(quiet);
  *training.values<bool>().begin() = true;
  CHECK(infer_error(quiet) == ErrorKind::unsupported);
}

TEST_CASE("view/squeeze_on_moved_axes") {
  const Tensor x = random_f32({2, 1, 3, 1}, 6);
  const auto moved = [&](const OpCase& c) {
    const auto op = make_op(c)->permuted(std::vector<int>{0, 2, 3, 1}, infos_of(c.inputs, c.constant));
    if (!op) return std::string("stays");
    CHECK(op->inputs.size() == 1);
    CHECK(op->same_result);
    return to_string(op->op->attributes());
  };
  CHECK(moved({.op = "Squeeze", .opset = 11, .attributes = {{"axes", Ints{1, -1}}}, .inputs = {x}}) == "axes=[1,2]");
  CHECK(moved({.op = "Squeeze", .inputs = {x, int64s({3})}, .constant = {1}}) == "axes=[1]");
  CHECK(moved({.op = "Squeeze", .inputs = {x, int64s({1})}, .constant = {1}}) == "stays");  // the other axes swap
  CHECK(moved({.op = "Squeeze", .inputs = {x}}) == "stays");
}

TEST_CASE("view/gives_the_input_back_where_nothing_changes") {
  const auto same = [](const OpCase& c) { return make_op(c)->gives_input_back(infos_of(c.inputs, c.constant)); };
  CHECK(same(reshape({2, 3}, int64s({2, -1}))));
  CHECK_FALSE(same(reshape({2, 3}, int64s({3, 2}))));
  CHECK(same({.op = "Identity", .inputs = {random_f32({3}, 8)}}));
  CHECK(same({.op = "Dropout", .inputs = {random_f32({3}, 8)}}));
  CHECK(same({.op = "Dropout", .inputs = {random_f32({3}, 8)}, .outputs = 2}));  // no mask is read
  const InputInfo square{true, {DType::f32, {1, 4, 4, 4}}, nullptr};
  const auto relabel = [](const char* kind) { return make_normalised_op("Relabel", {{"kind", kind}}, 1); };
  CHECK_FALSE(relabel("channels_first")->gives_input_back({&square, 1}));
  CHECK(relabel("layout")->gives_input_back({&square, 1}));
}

TEST_CASE("view/relabel") {
  const OpCase relabel{.op = "Relabel", .domain = "lenslet"};
  const Tensor x = random_f32({2, 5, 7, 3}, 8);
  check_op(with(relabel, {x}, {{"kind", "channels_first"}}));
  check_op(with(relabel, {x}, {{"kind", "channels_last"}}));
  check_op(with(relabel, {x}, {{"kind", "pixels"}}));
  check_op(with(relabel, {random_f32({2, 9, 1, 1}, 8)}, {{"kind", "layout"}}));
}

TEST_CASE("view/aliases_name_their_input") {
  CHECK(make_op(reshape({6}, int64s({6})))->alias_input() == 0);
  CHECK(make_op({.op = "Dropout", .inputs = {random_f32({3}, 8)}})->alias_input() == 0);
  CHECK(make_op({.op = "Dropout", .inputs = {random_f32({3}, 8)}, .outputs = 2})->alias_input() == -1);
}

}  // namespace lenslet::test
