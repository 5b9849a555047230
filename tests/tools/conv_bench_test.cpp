// What `lenslet bench conv` is made of: problems by name and by text, and the judge of results.

#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "tools/measuring/conv_sets.h"
#include "tools/measuring/conv_timer.h"

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

TEST_CASE("tools/conv_sets/parsed") {
  CHECK(parse_conv("1,64,56,57,128,3,5").problem.str() == "1x64x56x57 -> 128, 3x5 s1 p0 g1");
  const ConvProblem all = parse_conv("2,8,9,9,16,3,3,2,1,2,4").problem;
  CHECK(all.stride_w == 2);
  CHECK(all.pad_bottom == 1);
  CHECK(all.dilation_h == 2);
  CHECK(all.groups == 4);
  for (const char* text : {"", "1", "1,2,3,4,5,6", "1,2,3,4,5,6,7,8,9,10,11,12", "1,2,3,4,5,1,x", "1,2,3,4,5,1,1,",
                           "1,3,8,8,4,1,1,1,0,1,2", "1,3,8,8,4,1,1,1,0,1,0", "1,3,8,8,4,9,9", "1,3,8,8,4,1,1,0"})
    CHECK_THROWS_AS(parse_conv(text), Error);
}

TEST_CASE("tools/conv_timer/errors_are_seen") {
  const std::unique_ptr<ConvTimer> timer = cpu_conv_timer(1);
  // All outputs judged, and a drawn part of them (4 * 17 * 8 * 9 > 2048); groups, pads, dilation and an activation.
  for (const char* text : {"1,6,7,9,8,3,3,2,1,1,2", "4,6,12,13,17,3,3,1,0,2", "1,3,5,5,4,1,1"}) {
    ConvProblem problem = parse_conv(text).problem;
    problem.bias = true;
    problem.activation = {Activation::Kind::leaky_relu, 0.25F, 0};
    const ConvOperands operands(problem);
    const ConvReference reference(problem, operands);
    for (const ConvAlgorithm* algorithm : conv_algorithms(DeviceKind::cpu)) {
      if (algorithm->refuse(problem)) continue;
      const ConvTime time = timer->time(*algorithm, problem, operands, reference, 0);
      CHECK_MESSAGE(time.error <= algorithm->tolerance(problem), algorithm->name(), " on ", text);
      CHECK(time.error > 0);
      CHECK(time.samples >= 7);
      CHECK(time.p10_us <= time.median_us);
    }
    std::vector<float> y(static_cast<std::size_t>(problem.n * problem.k * problem.p * problem.q), 0.0F);
    CHECK(reference.error(y.data(), formats::nchw) >= 1);
    y[0] = std::numeric_limits<float>::quiet_NaN();  // a corner is always judged
    CHECK_FALSE(reference.error(y.data(), formats::nchw) <= 1e30);
  }
}

TEST_CASE("tools/conv_timer/summary") {
  const ConvTime time = summarise({5, 1, 4, 2, 3, 9, 8, 7, 6, 10});
  CHECK(time.median_us == 6);
  CHECK(time.p10_us == 2);
  CHECK(time.p90_us == 10);
  CHECK(time.samples == 10);
}

}  // namespace
}  // namespace lenslet::tool
