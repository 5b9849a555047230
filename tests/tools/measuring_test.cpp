// Parts of `lenslet bench conv`: problems by name and by text, running and judging kernels.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "oracle/draw.h"
#include "oracle/oracle.h"
#include "photos/dtype_convert.h"
#include "tests/expect_error.h"
#include "tools/measuring/conv_data.h"
#include "tools/measuring/conv_sets.h"
#include "tools/measuring/kernel_timer.h"

namespace lenslet::tool {
namespace {

TEST_CASE("tools/conv_sets/named") {
  std::set<std::string> names;
  std::size_t layers = 0;
  for (const std::string& set : conv_set_names()) {
    const std::vector<NamedConv> list = conv_set(set, {1, 8});
    CHECK(list.size() % 2 == 0);
    layers += list.size() / 2;
    for (const NamedConv& conv : list) names.insert(conv.name);
  }
  CHECK(names.size() == layers);  // no name twice
  const NamedConv stem = conv_set("resnet50", {8}).front();
  CHECK(stem.name == "r50.stem7x7");
  CHECK(stem.problem.str() == "8x3x224x224 -> 64, 7x7 s2 p3 g1");
  CHECK(conv_set("seeds", {1}).back().problem.q == 17);  // 1x7 pads the width only
  CHECK_THROWS_WITH_AS(conv_set("resnet", {1}), doctest::Contains("mobilenet_v2"), Error);
}

TEST_CASE("tools/conv_sets/drawn") {
  const std::vector<NamedConv> few = drawn_convs(20, 3), many = drawn_convs(300, 3);
  REQUIRE(many.size() == 300);
  for (std::size_t i = 0; i < few.size(); ++i) CHECK(few[i].problem == many[i].problem);
  CHECK(many[7].name == "drawn.3.7");
  std::set<std::string> texts;
  for (const NamedConv& conv : many) texts.insert(conv.problem.str());
  CHECK(texts.size() > 290);
  CHECK(drawn_convs(20, 4)[0].problem.str() != few[0].problem.str());
  const auto has = [&](auto what) {
    return std::ranges::any_of(many, [&](const NamedConv& conv) { return what(conv.problem); });
  };
  CHECK(has([](const ConvProblem& p) { return p.groups > 1 && p.groups == p.c && p.k == p.c; }));
  CHECK(has([](const ConvProblem& p) { return p.groups > 1 && p.groups == p.c && p.k > p.c; }));
  CHECK(has([](const ConvProblem& p) { return p.groups > 1 && p.groups < p.c; }));
  CHECK(has([](const ConvProblem& p) { return p.c % 2 == 1 && p.k % 2 == 1; }));
  CHECK(has([](const ConvProblem& p) { return p.dilation_h == 2 && p.r == 3; }));
  CHECK(has([](const ConvProblem& p) { return p.r == 7 && p.s == 1; }));
  // The same with every library and on every machine.
  CHECK(drawn_convs(1, 1)[0].problem.str() == "1x384x7x14 -> 409, 1x1 s1 p0 g1");
}

TEST_CASE("tools/conv_sets/drawn_odd_shapes") {
  const std::vector<NamedConv> list = drawn_convs(300, 3, Shapes::odd);
  CHECK(list[7].name == "odd.3.7");
  const auto has = [&](auto what) {
    return std::ranges::any_of(list, [&](const NamedConv& conv) { return what(conv.problem); });
  };
  CHECK(has([](const ConvProblem& p) { return p.c == 1 && p.h == 1 && p.s > 200 && p.stride_w > 1; }));
  CHECK(has([](const ConvProblem& p) { return p.w == 1 && p.r > 30 && p.groups == p.c && p.c > 1; }));
  CHECK(has([](const ConvProblem& p) { return p.h == 1 && p.dilation_w > 16 && p.groups == 1 && p.c > 30; }));
  CHECK(has([](const ConvProblem& p) { return p.groups == p.c && p.k > p.c && p.c > 1 && p.s > 8; }));
  CHECK(has([](const ConvProblem& p) { return p.r > p.h && p.s > p.w; }));
  CHECK(has([](const ConvProblem& p) { return p.c > 1000 && p.h * p.w < 10; }));
  CHECK(has([](const ConvProblem& p) { return p.n == 5; }));
  for (const NamedConv& conv : list) CHECK(conv.problem.flops() <= 3e9);
}

/// The reason of a refusal follows the text itself.
void check_refused(const std::string& text, const std::string& reason) {
  CHECK_ERROR(parse_conv(text), invalid_argument, '"' + text + '"');
  CHECK_ERROR(parse_conv(text), invalid_argument, reason);
}

TEST_CASE("tools/conv_sets/parsed") {
  CHECK(parse_conv("1,64,56,57,128,3,5").str() == "1x64x56x57 -> 128, 3x5 s1 p0 g1");
  const ConvProblem all = parse_conv("2,8,9,9,16,3,3,2,1,2,4");
  CHECK(all.stride_w == 2);
  CHECK(all.pad_bottom == 1);
  CHECK(all.dilation_h == 2);
  CHECK(all.groups == 4);
  for (const char* text : {"", "1", "1,2,3,4,5,6", "1,2,3,4,5,6,7,8,9,10,11,12", "1,2,3,4,5,1,x", "1,2,3,4,5,1,1,"})
    check_refused(text, " is no convolution: N,C,H,W,K,R,S[,stride");
  check_refused("1,3,8,8,4,1,1,1,0,1,2", ": 2 groups do not divide 3 channels");
  check_refused("1,3,8,8,4,1,1,1,0,1,0", ": 0 groups do not divide 3 channels");
  check_refused("1,3,8,8,4,9,9", "filter spans 9 in height, the padded input only 8");
  check_refused("1,3,8,8,4,1,1,0", "stride 0 of height is not positive");
}

TEST_CASE("tools/conv_sets/problems_read_as_they_are_printed") {
  const auto same = [](const ConvProblem& problem) {
    CAPTURE(problem.str());
    CHECK(parse_conv(problem.str()) == problem);
  };
  for (const std::string& set : conv_set_names())
    for (const NamedConv& conv : conv_set(set, {1, 3})) same(conv.problem);
  ConvProblem problem = resolve_conv({2, 8, 9, 11}, {16, 2, 3, 5},
                                     {.stride = {2, 1}, .dilation = {1, 2}, .pads = {0, 1, 2, 3}, .groups = 4});
  same(problem);
  problem.bias = problem.residual = true;
  for (const Activation activation :
       {Activation{Activation::Kind::relu}, Activation{Activation::Kind::clip, 0, 6},
        Activation{Activation::Kind::leaky_relu, 0.25F}, Activation{Activation::Kind::hard_swish, 1.0F / 6, 0.5F}}) {
    problem.activation = activation;
    same(problem);
  }
  CHECK(parse_conv("2x8x9x11 -> 16, 3x5 s2x1 p0,1,2,3 g4 d1x2 +bias +residual +hard_swish") == problem);
  same(resolve_conv({1, 8, 9}, {4, 8, 3}, {.pads = {0, 1, 0, 1}}));
  for (const std::string rest : {"s1 p1", "s1 p1,1 g1", "s1x1x1 p1 g1", "s1 p1 g1x2", "s1 p1 g1 bias"})
    check_refused("1x64x56x56 -> 64, 3x3 " + rest, " is no convolution: N,C,H,W,K,R,S[,stride");
  check_refused("99999999999999999999x64x56x56 -> 64, 3x3 s1 p1 g1", " is no convolution: ");
  check_refused("1x64x56x56 -> 64, 3x3 s1 p1 g1 +nonsense", "no activation is called 'nonsense'");
  check_refused("1x64x56x56 -> 64, 3x3 s1 p1 g1 +clip(0)", "there is no activation 'clip(0)'");
  check_refused("1x64x56x56 -> 64, 3x3 s1 p1 g1 +clip(nan,x)", "there is no activation 'clip(nan,x)'");
  check_refused("1x64x56x56 -> 64, 3x3 s1 p1 g3", "3 groups do not divide 64 channels");
  check_refused("1x64x56x56 -> 64, 3x3 s0 p1 g1", "stride 0 of height is not positive");
}

TEST_CASE("tools/kernel_timer/errors_are_seen") {
  const std::unique_ptr<KernelTimer> timer = cpu_timer(1);
  // All outputs judged, and a random part of them (4 * 17 * 8 * 9 > 2048); groups, pads, dilation and an activation.
  for (const char* text : {"1,6,7,9,8,3,3,2,1,1,2", "4,6,12,13,17,3,3,1,0,2", "1,3,5,5,4,1,1"}) {
    ConvProblem problem = parse_conv(text);
    problem.bias = problem.residual = true;
    problem.activation = {Activation::Kind::leaky_relu, 0.25F, 0};
    const PosedConv conv(problem);
    const ConvReference reference(conv);
    for (const Kernel* kernel : kernels_of("Conv", DeviceKind::cpu))
      for (const Candidate& candidate : kernel->offer(*conv.node, {timer->device()}).candidates) {
        const Measured measured = timer->measure(*kernel, *conv.node, candidate, conv.inputs, 0);
        const double error = reference.error(measured.outputs.at(0));
        CHECK_MESSAGE(error <= candidate.tolerance, std::string(kernel->name()), " on ", text);
        CHECK(error > 0);
        CHECK(measured.us.count >= 1);  // how many depends on the machine: tools/samples
        CHECK(measured.us.p10 <= measured.us.median);
      }
    Tensor y(DType::f32, {problem.n, problem.k, problem.p, problem.q});
    std::ranges::fill(y.values<float>(), 0.0F);
    CHECK(reference.error(y) >= 1);
    y.values<float>()[0] = std::numeric_limits<float>::quiet_NaN();  // a corner is always judged
    CHECK_FALSE(reference.error(y) <= 1e30);
  }
}

TEST_CASE("tools/kernel_timer/any_operator") {
  const InputInfo x{.present = true, .type = {DType::f32, {2, 3, 5, 7}}};
  const Problem problem(make_op("Relu", "", {}, 1), {&x, 1});
  const std::vector<Tensor> inputs = drawn_inputs(problem);
  const std::unique_ptr<KernelTimer> timer = cpu_timer(2);
  const Choice choice = choose_kernel(problem, {timer->device()}, "relu");
  const Measured measured = timer->measure(*choice.kernel, problem, choice.candidate, inputs, 0);
  const Tensor y = measured.outputs.at(0).to_format(formats::nchw);
  bool negative = false;
  for (std::size_t i = 0; i < y.values<float>().size(); ++i) {
    const float value = inputs[0].values<float>()[i];
    negative = negative || value < 0;
    CHECK(y.values<float>()[i] == std::max(value, 0.0F));
  }
  CHECK(negative);
}

TEST_CASE("tools/draw/every_type") {
  for (unsigned type = 0; type < dtype_count; ++type) {
    Tensor tensor(static_cast<DType>(type), {512});
    oracle::FastEngine engine(1);
    oracle::draw(tensor, engine);
    const std::vector<double> drawn = oracle::from_tensor(tensor).values;
    const std::set<double> values(drawn.begin(), drawn.end());
    CAPTURE(type);
    CHECK(values.size() >= 2);
    if (!photos::is_float(tensor.dtype())) continue;
    CHECK(values.size() > 64);
    CHECK(*values.begin() >= -1);
    CHECK(*values.begin() < 0);
    CHECK(*values.rbegin() < 1);
    CHECK(values.count(0) == 0);
  }
}

TEST_CASE("tools/samples/summary") {
  const Quantiles us = quantiles({5, 1, 4, 2, 3, 9, 8, 7, 6, 10});
  CHECK(us.median == 6);
  CHECK(us.p10 == 2);
  CHECK(us.p90 == 10);
  CHECK(us.count == 10);
  CHECK(least_samples(0.019) == 7);
  CHECK(least_samples(0.02) == 3);
  CHECK(least_samples(0.2) == 1);
  int measured = 0;
  CHECK(sample(0, 7, [&] { return static_cast<double>(++measured); }).size() == 7);
  CHECK(measured == 7);
}

}  // namespace
}  // namespace lenslet::tool
