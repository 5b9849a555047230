// Conv and ConvTranspose in 3-D compared with the definition.

#include <doctest/doctest.h>

#include "tests/ops/op_harness.h"

namespace lenslet::test {
namespace {

using Ints = std::vector<std::int64_t>;
using Text = std::string;

constexpr double tolerance = 2e-5;  ///< Winograd's, which may compute the planes

OpCase volume(const char* op, Shape x, Shape w, AttributeList attributes, bool bias = true) {
  std::int64_t groups = 1;
  for (const auto& [name, value] : attributes)
    if (name == "group") groups = std::get<std::int64_t>(value);
  OpCase c{.op = op,
           .opset = 11,
           .attributes = std::move(attributes),
           .inputs = {random_f32(x, 1), random_f32(w, 2)},
           .tolerance = tolerance};
  c.maybe_constant.push_back(1);
  if (bias) {
    const bool transposed = c.op == "ConvTranspose";
    c.inputs.push_back(random_f32({transposed ? w[1] * groups : w[0]}, 3));
    c.maybe_constant.push_back(2);
  }
  return c;
}

}  // namespace

TEST_CASE("volume/conv") {
  check_op(volume("Conv", {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {}));
  check_op(volume("Conv", {2, 3, 5, 6, 7}, {4, 3, 3, 3, 3}, {}));
  check_op(volume("Conv", {2, 3, 5, 6, 7}, {4, 3, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1, 1, 1}}}, false));
  check_op(volume("Conv", {2, 3, 5, 6, 7}, {4, 3, 1, 3, 3}, {{"pads", Ints{0, 1, 1, 0, 1, 1}}}));
  check_op(volume("Conv", {2, 3, 5, 6, 7}, {4, 3, 3, 1, 1}, {{"pads", Ints{1, 0, 0, 1, 0, 0}}}));
  check_op(volume(
      "Conv", {1, 4, 9, 8, 7}, {6, 2, 3, 2, 4},
      {{"strides", Ints{2, 1, 3}}, {"dilations", Ints{2, 3, 1}}, {"pads", Ints{3, 0, 1, 2, 4, 0}}, {"group", 2}}));
  check_op(volume("Conv", {1, 5, 6, 5, 4}, {5, 1, 3, 3, 3}, {{"group", 5}, {"auto_pad", Text("SAME_UPPER")}}));
  check_op(
      volume("Conv", {1, 2, 7, 5, 4}, {3, 2, 4, 2, 2}, {{"strides", Ints{3, 2, 1}}, {"auto_pad", Text("SAME_LOWER")}}));
  // Pointwise: nothing is copied.
  check_op(volume("Conv", {2, 6, 5, 6, 7}, {4, 3, 1, 1, 1}, {{"group", 2}}));
  check_op(volume("Conv", {1, 3, 2, 3, 4}, {2, 3, 1, 1, 1}, {{"pads", Ints{1, 0, 0, 0, 0, 0}}}));
  check_op(volume("Conv", {1, 3, 5, 3, 4}, {2, 3, 1, 1, 1}, {{"strides", Ints{2, 1, 1}}}, false));
  // Strides along axes of length 1.
  check_op(volume("Conv", {1, 15, 2, 1, 1}, {15, 1, 1, 1, 1}, {{"strides", Ints{1, 2, 2}}, {"group", 15}}));
  check_op(volume("Conv", {2, 3, 1, 1, 4}, {2, 3, 1, 1, 1}, {{"strides", Ints{2, 3, 1}}}));
  // Whole depths of padding, and taps that read only padding.
  check_op(volume("Conv", {1, 2, 1, 3, 3}, {3, 2, 3, 1, 1}, {{"pads", Ints{4, 0, 0, 3, 0, 0}}}));
}

// Several chunks of columns and a tail, of every stride and side; windows that read nothing of the line.
TEST_CASE("volume/one_line") {
  check_op(volume("Conv", {2, 3, 1100}, {5, 3, 3}, {{"pads", Ints{1, 1}}}));
  check_op(volume("Conv", {1, 4, 700}, {6, 2, 5},
                  {{"strides", Ints{3}}, {"dilations", Ints{4}}, {"pads", Ints{0, 70}}, {"group", 2}}));
  check_op(volume("Conv", {3, 40, 65}, {33, 40, 7}, {{"pads", Ints{6, 0}}}, false));
  check_op(volume("Conv", {1, 2, 3}, {4, 2, 2}, {{"dilations", Ints{9}}, {"pads", Ints{20, 11}}}));
  check_op(volume("Conv", {1, 3, 1, 50}, {4, 3, 1, 3}, {{"strides", Ints{1, 2}}}));
  check_op(volume("ConvTranspose", {1, 3, 40}, {3, 4, 4}, {{"strides", Ints{2}}, {"pads", Ints{1, 1}}}));
}

TEST_CASE("volume/a_single_element_outside_is_zero") {
  check_op(volume("Conv", {1, 1, 3, 1, 1}, {2, 1, 3, 1, 1}, {{"pads", Ints{1, 0, 0, 0, 0, 0}}}));
}

TEST_CASE("volume/zeros_around_it_are_pads") {
  OpCase c = volume("Conv", {2, 3, 5, 6, 7}, {4, 3, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1, 1, 1}}});
  const std::shared_ptr<const Op> plain = make_op(c);
  CHECK(to_string(plain->attributes()) == "strides=[1,1,1] dilations=[1,1,1] pads=[1,1,1,1,1,1] group=1");
  CHECK(plain->imagined_zeros(std::vector<InputInfo>{{true, {DType::f32, {2, 3, 5, 6, 7}}},
                                                     {true, {DType::f32, {4, 3, 3, 3, 3}}}}) == Ints(6, 1));
  const auto padded = plain->imagining_zeros({1, 2, 3, 4, 5, 6});
  CHECK(integers_attribute(*padded, "pads") == Ints{1, 2, 3, 4, 5, 6});
}

TEST_CASE("volume/conv_transpose") {
  check_op(volume("ConvTranspose", {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {}));
  check_op(volume("ConvTranspose", {2, 3, 4, 5, 3}, {3, 4, 3, 2, 3}, {}, false));
  for (const std::int64_t stride : {1, 2, 3})
    for (const std::int64_t pad : {0, 1})
      check_op(volume("ConvTranspose", {1, 4, 3, 4, 2}, {4, 3, 3, 3, 2},
                      {{"strides", Ints{stride, 2, 1}}, {"pads", Ints{pad, 0, 1, 0, pad, 0}}, {"group", 2}}));
  check_op(volume("ConvTranspose", {1, 2, 3, 3, 3}, {2, 3, 2, 3, 3},
                  {{"strides", Ints{3, 2, 2}}, {"dilations", Ints{2, 1, 3}}, {"output_padding", Ints{2, 1, 0}}}));
  check_op(volume("ConvTranspose", {1, 2, 3, 3, 3}, {2, 3, 2, 3, 3},
                  {{"strides", Ints{2, 2, 2}}, {"output_shape", Ints{7, 6, 9}}}));
  check_op(volume("ConvTranspose", {1, 2, 3, 3, 3}, {2, 3, 4, 3, 3},
                  {{"strides", Ints{2, 2, 2}}, {"auto_pad", Text("SAME_UPPER")}}));
}

TEST_CASE("volume/shapes_and_attributes_of_other_ranks_are_refused") {
  const auto error = [](const char* op, Shape x, Shape w, AttributeList attributes) {
    return infer_error(volume(op, x, w, std::move(attributes), false));
  };
  for (const char* op : {"Conv", "ConvTranspose"}) {
    CHECK(error(op, {1, 3, 4, 4, 4}, {3, 3, 3, 3}, {}) == ErrorKind::invalid_model);
    CHECK(error(op, {1, 4, 4, 4, 4}, {3, 3, 3, 3, 3}, {}) == ErrorKind::invalid_model);
    CHECK(error(op, {1, 3, 4, 4, 4}, {3, 3, 3, 3, 3}, {{"strides", Ints{1, 1}}}) == ErrorKind::invalid_model);
    CHECK(error(op, {1, 3, 4, 4, 4}, {3, 3, 3, 3, 3}, {{"strides", Ints{0, 1, 1}}}) == ErrorKind::invalid_model);
    CHECK(error(op, {1, 3, 4, 4, 4}, {3, 3, 3, 3, 3}, {{"pads", Ints{-1, 0, 0, 0, 0, 0}}}) == ErrorKind::unsupported);
    CHECK(error(op, {1, 3, 4, 4, 4}, {3, 3, 3, 3, 3}, {{"kernel_shape", Ints{2, 3, 3}}}) == ErrorKind::invalid_model);
    CHECK(error(op, {1, 3, 4, 4, 4, 4}, {3, 3, 3, 3, 3, 3}, {}) == ErrorKind::unsupported);
  }
  CHECK(error("Conv", {1, 3, 2, 4, 4}, {3, 3, 3, 3, 3}, {}) == ErrorKind::invalid_model);
}

}  // namespace lenslet::test
