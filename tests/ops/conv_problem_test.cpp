// resolve_conv: pads, output sizes, and every contradiction by name; the Conv operator's attributes.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>

#include "ops/conv/conv.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

ConvGeometry geometry(std::array<std::int64_t, 2> stride, std::array<std::int64_t, 4> pads,
                      AutoPad auto_pad = AutoPad::notset, std::array<std::int64_t, 2> dilation = {1, 1}) {
  ConvGeometry g;
  g.stride = stride;
  g.pads = pads;
  g.auto_pad = auto_pad;
  g.dilation = dilation;
  return g;
}

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("conv_problem/explicit_pads") {
  const ConvProblem p = resolve_conv({2, 3, 224, 225}, {64, 3, 7, 5}, geometry({2, 3}, {3, 2, 1, 0}));
  CHECK(p.p == (224 + 4 - 7) / 2 + 1);
  CHECK(p.q == (225 + 2 - 5) / 3 + 1);
  CHECK(p.pad_top == 3);
  CHECK(p.pad_left == 2);
  CHECK(p.pad_bottom == 1);
  CHECK(p.pad_right == 0);
  CHECK(p.flops() == 2.0 * 2 * 64 * static_cast<double>(p.p * p.q) * 3 * 35);
  CHECK(p.str() == "2x3x224x225 -> 64, 7x5 s2x3 p3,2,1,0 g1");

  const ConvProblem padded = p.with_explicit_padding();
  CHECK(padded.h == 228);
  CHECK(padded.w == 227);
  CHECK(!padded.padded());
  CHECK(padded.p == p.p);
  CHECK(resolve_conv({2, 3, padded.h, padded.w}, {64, 3, 7, 5}, geometry({2, 3}, {})) == padded);
}

TEST_CASE("conv_problem/dilation") {
  const ConvProblem p =
      resolve_conv({1, 1, 10, 11}, {1, 1, 3, 2}, geometry({1, 2}, {0, 0, 0, 0}, AutoPad::notset, {4, 5}));
  CHECK(p.p == 2);  // a span of 9 fits twice
  CHECK(p.q == 3);  // a span of 6 at 0, 2, 4
  CHECK(p.str() == "1x1x10x11 -> 1, 3x2 s1x2 p0 g1 d4x5");
}

TEST_CASE("conv_problem/auto_pad") {
  // 6 wide, filter 3, stride 2: out 3, 5 + 2 - 6 = 1 pad; upper puts it at the end and lower at the beginning.
  const ConvProblem upper = resolve_conv({1, 1, 6, 6}, {1, 1, 3, 3}, geometry({2, 2}, {}, AutoPad::same_upper));
  CHECK(upper.p == 3);
  CHECK(upper.pad_top == 0);
  CHECK(upper.pad_bottom == 1);
  const ConvProblem lower = resolve_conv({1, 1, 6, 6}, {1, 1, 3, 3}, geometry({2, 2}, {}, AutoPad::same_lower));
  CHECK(lower.pad_left == 1);
  CHECK(lower.pad_right == 0);
  CHECK(lower.q == 3);
  // A stride beyond the filter needs no pads, and never negative ones.
  const ConvProblem sparse = resolve_conv({1, 1, 7, 7}, {1, 1, 1, 1}, geometry({3, 4}, {}, AutoPad::same_upper));
  CHECK(sparse.p == 3);
  CHECK(sparse.q == 2);
  CHECK(!sparse.padded());
  const ConvProblem valid = resolve_conv({1, 1, 7, 8}, {1, 1, 3, 3}, geometry({2, 2}, {}, AutoPad::valid));
  CHECK(valid.p == 3);
  CHECK(valid.q == 3);
  CHECK(!valid.padded());
  // Dilation is included.
  const ConvProblem dilated =
      resolve_conv({1, 1, 9, 9}, {1, 1, 3, 3}, geometry({1, 1}, {}, AutoPad::same_lower, {2, 3}));
  CHECK(dilated.p == 9);
  CHECK(dilated.pad_top == 2);
  CHECK(dilated.pad_left == 3);
  // Explicit pads beside auto_pad are valid if both agree.
  CHECK(resolve_conv({1, 1, 6, 6}, {1, 1, 3, 3}, geometry({1, 1}, {1, 1, 1, 1}, AutoPad::same_upper)).p == 6);
  check_error(ErrorKind::invalid_model, "contradict auto_pad", [] {
    resolve_conv({1, 1, 6, 6}, {1, 1, 3, 3}, geometry({1, 1}, {2, 2, 2, 2}, AutoPad::same_upper));
  });
}

TEST_CASE("window/same_windows") {
  const auto check = [](std::int64_t size, std::int64_t span, std::int64_t stride, const SameWindows& upper) {
    const SameWindows a = same_windows(size, span, stride, AutoPad::same_upper);
    const SameWindows b = same_windows(size, span, stride, AutoPad::same_lower);
    CHECK(a.count == upper.count);
    CHECK(a.pad_before == upper.pad_before);
    CHECK(a.pad_after == upper.pad_after);
    CHECK(b.count == upper.count);
    CHECK(b.pad_before == upper.pad_after);
    CHECK(b.pad_after == upper.pad_before);
  };
  check(6, 3, 2, {3, 0, 1});
  check(7, 4, 3, {3, 1, 2});
  check(7, 1, 3, {3, 0, 0});  // the last window ends before the image does
  check(1, 5, 9, {1, 2, 2});
  check(0, 3, 2, {0, 0, 1});
  check(5, huge, huge, {1, (huge - 5) / 2, (huge - 5) / 2});
  check(huge, huge, 1, {huge, (huge - 1) / 2, (huge - 1) / 2});
}

TEST_CASE("conv_problem/one_dimension") {
  const ConvProblem p = resolve_conv({2, 4, 20}, {8, 4, 3}, geometry({1, 2}, {0, 1, 0, 1}));
  CHECK(p.h == 1);
  CHECK(p.r == 1);
  CHECK(p.p == 1);
  CHECK(p.w == 20);
  CHECK(p.q == 10);
}

TEST_CASE("conv_problem/contradictions") {
  const ConvGeometry plain = geometry({1, 1}, {});
  const auto invalid = [](const std::string& part, const Shape& x, const Shape& w, const ConvGeometry& g) {
    check_error(ErrorKind::invalid_model, part, [&] { resolve_conv(x, w, g); });
  };
  invalid("no spatial dimension", {1, 3}, {8, 3}, plain);
  invalid("differ in rank", {1, 3, 8, 8}, {8, 3, 3}, plain);
  invalid("channels a group", {1, 3, 8, 8}, {8, 4, 3, 3}, plain);
  invalid("no channels", {1, 0, 8, 8}, {8, 0, 3, 3}, plain);
  invalid("no output channels", {1, 3, 8, 8}, {0, 3, 3, 3}, plain);
  invalid("height is empty", {1, 3, 8, 8}, {8, 3, 0, 3}, plain);
  invalid("width is empty", {1, 3, 8, 0}, {8, 3, 3, 3}, plain);
  invalid("only 2", {1, 3, 2, 8}, {8, 3, 3, 3}, plain);
  invalid("stride 0", {1, 3, 8, 8}, {8, 3, 3, 3}, geometry({0, 1}, {}));
  invalid("stride -1", {1, 3, 8, 8}, {8, 3, 3, 3}, geometry({1, -1}, {}));
  invalid("dilation 0", {1, 3, 8, 8}, {8, 3, 3, 3}, geometry({1, 1}, {}, AutoPad::notset, {1, 0}));
  ConvGeometry groups = plain;
  groups.groups = 2;
  invalid("do not divide into 2 groups", {1, 3, 8, 8}, {8, 1, 3, 3}, groups);
  invalid("3 output channels", {1, 4, 8, 8}, {3, 2, 3, 3}, groups);
  groups.groups = 0;
  invalid("group 0", {1, 4, 8, 8}, {4, 4, 3, 3}, groups);
  check_error(ErrorKind::unsupported, "3-D convolution", [&] {
    resolve_conv({1, 3, 8, 8, 8}, {8, 3, 3, 3, 3}, plain);
  });
  check_error(ErrorKind::unsupported, "negative pads", [] {
    resolve_conv({1, 3, 8, 8}, {8, 3, 3, 3}, geometry({1, 1}, {0, -1, 0, 0}));
  });
}

TEST_CASE("conv_problem/overflow") {
  const auto limit = [](const ConvGeometry& g) {
    check_error(ErrorKind::limit, "", [&] { resolve_conv({1, 3, 8, 8}, {8, 3, 3, 3}, g); });
  };
  limit(geometry({1, 1}, {huge, 0, 0, 0}));
  limit(geometry({1, 1}, {0, huge / 2, 0, huge / 2 + 1}));
  limit(geometry({1, 1}, {0, huge / 4, 0, huge / 4}));  // countable alone, but not as a tensor
  limit(geometry({1, 1}, {}, AutoPad::notset, {huge, 1}));
  limit(geometry({1, 1}, {}, AutoPad::same_upper, {1, huge}));
  // A huge stride is harmless.
  CHECK(resolve_conv({1, 3, 8, 8}, {8, 3, 3, 3}, geometry({huge, huge}, {}, AutoPad::same_lower)).p == 1);
  const ConvProblem cut = resolve_conv({1, 3, 8, 9}, {8, 3, 1, 1}, geometry({huge, huge}, {1, 0, 0, 2}, {}, {huge, 5}));
  CHECK(cut.p == 1);
  CHECK(cut.q == 1);
  CHECK(cut.stride_h == 9);  // the padded height: no later overflow
  CHECK(cut.stride_w == 11);
  CHECK(cut.dilation_h == 1);  // of a single tap
  CHECK(cut.dilation_w == 1);
  // An empty batch is counted as well.
  check_error(ErrorKind::limit, "", [] { resolve_conv({0, 1, huge, huge}, {1, 1, 1, 1}, {}); });
}

namespace {

OpCase conv_case(AttributeList attributes, Shape x, Shape w, Shape bias = {}) {
  OpCase c;
  c.op = "Conv";
  c.attributes = std::move(attributes);
  c.inputs = {random_f32(x, 1), random_f32(w, 2)};
  if (bias.rank() != 0) c.inputs.push_back(random_f32(bias, 3));
  c.maybe_constant = {1};
  c.tolerance = 2e-5;
  return c;
}
using Integers = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("conv_op/matches_the_oracle") {
  check_op(conv_case({}, {1, 3, 9, 8}, {4, 3, 3, 3}, {4}));
  check_op(conv_case({{"strides", Integers{2, 1}}, {"pads", Integers{1, 0, 2, 3}}, {"group", std::int64_t{2}}},
                     {2, 4, 9, 8}, {6, 2, 3, 5}));
  check_op(conv_case({{"auto_pad", std::string("SAME_LOWER")}, {"kernel_shape", Integers{2, 4}}}, {1, 2, 5, 6},
                     {3, 2, 2, 4}, {3}));
  check_op(conv_case({{"auto_pad", std::string("VALID")}, {"dilations", Integers{2, 3}}}, {1, 2, 9, 9}, {3, 2, 3, 3}));
  // 1-D
  check_op(conv_case({{"strides", Integers{2}}, {"pads", Integers{1, 2}}}, {2, 3, 11}, {5, 3, 4}, {5}));
}

TEST_CASE("conv_op/outer_taps_that_meet_nothing_but_zeros_can_go") {
  struct Row {
    Shape x, w;
    Integers strides, dilations, pads;
    Integers begins, ends;  ///< of the remaining taps, by hand; empty: all remain
  };
  const Row rows[] = {
      {{1, 2, 2, 3}, {3, 2, 5, 5}, {1, 1}, {1, 1}, {2, 2, 2, 2}, {1, 0}, {4, 5}},
      {{2, 2, 4}, {3, 2, 7}, {1}, {1}, {6, 3}, {}, {}},
      {{1, 2, 3}, {3, 2, 3}, {4}, {1}, {2, 2}, {}, {}},  // only the middle one is unused
      {{1, 2, 3}, {3, 2, 3}, {4}, {1}, {3, 3}, {0}, {2}},
      {{1, 2, 3}, {3, 2, 3}, {1}, {4}, {4, 4}, {1}, {2}},
      {{1, 2, 3}, {3, 2, 3}, {1}, {4}, {3, 5}, {0}, {2}},  // fewer leading zeros than removing the first tap would take
      {{1, 1, 2}, {2, 1, 2}, {9}, {1}, {4, 4}, {1}, {2}},  // both: one must remain
      {{1, 2, 6}, {2, 2, 3}, {2}, {1}, {0, 0}, {}, {}},
      {{1, 1, 1, 3, 3}, {2, 1, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}, {1, 0, 0}, {2, 3, 3}},
      {{1, 1, 3, 3, 2}, {2, 1, 3, 3, 3}, {1, 1, 2}, {1, 1, 1}, {1, 1, 1, 1, 1, 2}, {}, {}},
  };
  for (const Row& row : rows) {
    OpCase c = conv_case({{"strides", row.strides}, {"dilations", row.dilations}, {"pads", row.pads}}, row.x, row.w);
    CAPTURE(row.x.str());
    const auto op = make_op(c);
    const std::vector<InputInfo> infos = infos_of(c.inputs, {});
    CHECK(op->imagined_zeros(infos) == row.pads);
    const auto cropped = op->without_idle_taps(infos);
    REQUIRE(cropped.has_value() == !row.begins.empty());
    if (!cropped) continue;
    CHECK(cropped->begins == row.begins);
    CHECK(cropped->ends == row.ends);
    const auto list = [](const Integers& values) {
      return Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, std::span(values));
    };
    Integers axes(row.begins.size());
    std::iota(axes.begin(), axes.end(), 2);
    OpCase fewer = c;
    fewer.inputs[1] = run_op({.op = "Slice",
                              .inputs = {c.inputs[1], list(row.begins), list(row.ends), list(axes)},
                              .constant = {1, 2, 3}})[0];
    fewer.attributes.back().second = cropped->op->imagined_zeros(infos_of(fewer.inputs, {})).value();
    const Tensor all = run_op(c)[0], of_fewer = run_op(fewer)[0];
    REQUIRE(all.shape() == of_fewer.shape());
    for (std::size_t i = 0; i < static_cast<std::size_t>(all.elems()); ++i)
      CHECK(std::abs(all.values<float>()[i] - of_fewer.values<float>()[i]) < 1e-4F);
  }
}

TEST_CASE("conv_op/attributes") {
  const auto op = make_op(conv_case({{"strides", Integers{2}}, {"pads", Integers{1, 2}}}, {2, 3, 11}, {5, 3, 4}));
  CHECK(to_string(op->attributes()) == "strides=[1,2] dilations=[1,1] pads=[0,1,0,2] group=1");
}

TEST_CASE("conv_op/attributes_of_other_numbers_of_axes_are_refused") {
  const auto refused = [](ErrorKind kind, const std::string& part, const OpCase& c) {
    check_error(kind, part, [&] { infer_op(c); });
  };
  refused(ErrorKind::invalid_model, "bias [5]", conv_case({}, {1, 3, 9, 8}, {4, 3, 3, 3}, {5}));
  refused(ErrorKind::invalid_model, "kernel_shape [3,5]",
          conv_case({{"kernel_shape", Integers{3, 5}}}, {1, 3, 9, 8}, {4, 3, 3, 3}));
  refused(ErrorKind::invalid_model, "strides",
          conv_case({{"kernel_shape", Integers{3, 3}}, {"strides", Integers{1}}}, {1, 3, 9, 8}, {4, 3, 3, 3}));
  refused(ErrorKind::invalid_model, "1 spatial axes",
          conv_case({{"strides", Integers{1}}}, {1, 3, 9, 8}, {4, 3, 3, 3}));
  refused(ErrorKind::invalid_model, "odd number", conv_case({{"pads", Integers{1, 1, 1}}}, {1, 3, 9, 8}, {4, 3, 3, 3}));
  refused(ErrorKind::invalid_model, "auto_pad",
          conv_case({{"auto_pad", std::string("SAME")}}, {1, 3, 9, 8}, {4, 3, 3, 3}));
  refused(ErrorKind::invalid_model, "3 spatial axes",
          conv_case({{"strides", Integers{1, 1, 1}}}, {1, 3, 9, 8}, {4, 3, 3, 3}));
  refused(ErrorKind::invalid_model, "2 spatial axes",
          conv_case({{"strides", Integers{1, 1}}}, {1, 3, 9, 8, 7}, {4, 3, 3, 3, 3}));
  refused(ErrorKind::invalid_model, "differ in rank", conv_case({}, {1, 3, 9, 8, 7}, {4, 3, 3, 3}));
  refused(ErrorKind::unsupported, "4-D", conv_case({{"strides", Integers{1, 1, 1, 1}}}, {1, 3, 9, 8}, {4, 3, 3, 3}));
  refused(ErrorKind::unsupported, "4-D", conv_case({}, {1, 3, 9, 8, 7, 6}, {4, 3, 3, 3, 3, 3}));
  OpCase wide = conv_case({}, {1, 3, 9, 8}, {4, 3, 3, 3});
  wide.inputs[0] = random_of(DType::f64, {1, 3, 9, 8}, 1, -1, 1);
  refused(ErrorKind::unsupported, "float64", wide);
}

}  // namespace lenslet::test
