// Every CPU convolution algorithm on every problem of conv_cases.cpp, compared with the double-precision oracle. An
// algorithm added to ops/conv/rows.cpp is tested without a change here.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/device_profile.h"
#include "ops/conv/conv.h"
#include "ops/core/choose.h"
#include "tests/expect_error.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"
#include "tests/random_seed.h"
#include "tests/tensors.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::test {
namespace {

constexpr int threads = 3;
/// All except "planes", which is for 3-D only: volume_test.cpp.
std::vector<const Kernel*> planar_algorithms() {
  std::vector<const Kernel*> list;
  for (const Kernel* algorithm : kernels_of("Conv", DeviceKind::cpu))
    if (algorithm->name() != "planes") list.push_back(algorithm);
  return list;
}

// One function for all cases; its registered name "conv/problem/PROBLEM" selects the problem.
void run_named_case() {
  const std::string_view name = doctest::getContextOptions()->currentTest->m_name;
  const std::string_view problem = name.substr(name.rfind('/') + 1);
  for (const ConvCase& c : conv_cases())
    if (c.name == problem) return check_conv(planar_algorithms(), c.problem, random_seed(), threads);
  FAIL("no such problem");
}

int register_cases() {
  static std::deque<std::string> names;  // doctest keeps the pointers
  for (const ConvCase& c : conv_cases()) {
    names.push_back("conv/problem/" + c.name);
    doctest::detail::regTest(
        doctest::detail::TestCase(run_named_case, __FILE__, __LINE__, doctest::detail::TestSuite()) *
        names.back().c_str());
  }
  return 0;
}
[[maybe_unused]] const int registered = register_cases();

}  // namespace

TEST_CASE("conv/points_of_every_other_line_or_column") {
  for (const char* const p : {"2x8x9x7 -> 12, 1x1 s2x1 p0 g1", "2x8x9x7 -> 12, 1x1 s1x2 p0 g1"})
    check_conv(planar_algorithms(), parse_conv(p), random_seed(), threads);
}

TEST_CASE("conv/activations_of_metaformers_and_hgnet") {
  for (const char* const f : {"affine_relu(0.9,-0.4)", "star_relu(0.9,-0.4)", "swish(1.702)", "gelu_tanh"})
    for (const char* const p : {"2x19x9x10 -> 19, 3x3 s1 p1 g1", "2x24x9x10 -> 72, 3x3 s1 p1 g1",
                                "2x24x9x10 -> 64, 1x1 s1 p0 g1", "2x19x9x10 -> 19, 3x3 s1 p1 g19"})
      check_conv(planar_algorithms(), parse_conv(std::string(p) + " +bias +residual +" + f), random_seed(), threads);
}

TEST_CASE("conv/drawn_problems") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i)
    check_conv(planar_algorithms(), random_problem(random), seed + static_cast<unsigned>(i), threads);
}

TEST_CASE("conv/cases/unique_names") {
  std::set<std::string> names;
  for (const ConvCase& c : conv_cases()) CHECK_MESSAGE(names.insert(c.name).second, c.name);
}

/// With constant filters: the other tests pass even if an algorithm refuses more than before.
TEST_CASE("conv/cases/each_algorithm_takes_as_many_as_it_did") {
  const std::map<std::string_view, int> expected = {
      {"depthwise", 45},     {"direct", 165},       {"direct_lines", 113}, {"direct_packed", 165}, {"direct_rows", 165},
      {"im2col", 165},       {"kn2col", 158},       {"im2col_nchw", 14},   {"winograd_f2", 35},    {"winograd_f4", 35},
      {"winograd_f6", 35},   {"int8_depthwise", 0}, {"int8_amx", 0},       {"int8_packed", 0},     {"int8_direct", 0},
      {"bf16_depthwise", 0}, {"bf16_amx", 0},       {"bf16_packed", 0}};
  for (const Kernel* algorithm : planar_algorithms()) {
    CAPTURE(algorithm->name());
    int taken = 0;
    for (const ConvCase& c : conv_cases()) taken += accepts(*algorithm, c.problem) ? 1 : 0;
    CHECK(taken == expected.at(algorithm->name()));
  }
}

TEST_CASE("conv/computed_filters_are_read_as_they_lie") {
  const auto chosen = [](const Shape& x, const Shape& w) {
    const auto op = make_normalised_op("Conv", {{"pads", std::vector<std::int64_t>(4, w[2] / 2)}}, 2);
    const InputInfo inputs[] = {{.present = true, .type = {DType::f32, x}}, {.present = true, .type = {DType::f32, w}}};
    return choose_kernel(Problem(op, inputs), {cpu_profile(1)}, "a convolution").kernel->name();
  };
  CHECK(chosen({1, 512, 7, 7}, {512, 512, 3, 3}) == "im2col_nchw");
  CHECK(chosen({1, 64, 128, 128}, {64, 64, 1, 1}) == "im2col_nchw");
}

// Filters are packed once for all plans with the same key.
TEST_CASE("conv/filters_of_other_scales_have_another_key") {
  const ConvProblem p = parse_conv("1x16x9x9 -> 16, 3x3 s1 p1 g1");
  const Tensor w = random_f32({16, 16, 3, 3}, 1);
  std::vector<float> scale(16, 2.0F), other = scale;
  other.back() = 3;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda})
    for (const Kernel* const kernel : kernels_of("Conv", device)) {
      const Target target{.device = device == DeviceKind::cpu ? cpu_profile(1) : reference_gpu()};
      const auto key = [&](const std::vector<float>& of) -> std::string {
        const auto problem = pose(p, w, of);
        const Offer offer = kernel->offer(*problem, target);
        const auto blob =
            offer.candidates.empty() ? std::optional<BlobSpec>() : kernel->blob(*problem, offer.candidates[0]);
        return blob ? blob->key : std::string();
      };
      if (key(scale).empty()) continue;
      CHECK_MESSAGE(key(scale) != key(other), std::string(kernel->name()));
      CHECK_MESSAGE(key(scale) == key(scale), std::string(kernel->name()));
    }
}

// The last row and column of odd sizes are dropped.
TEST_CASE("conv/max_pool/winograd_stores_maxima_of_sums_in_order") {
  const Activation relu{Activation::Kind::relu, 0, 0}, relu6{Activation::Kind::clip, 0, 6};
  const unsigned seed = random_seed();
  int posed = 0;
  for (const std::int64_t n : {1, 3})
    for (const auto& [h, w] : {std::pair<std::int64_t, std::int64_t>{2, 2}, {3, 9}, {8, 13}, {25, 24}})
      for (const auto& [c, k] : {std::pair<std::int64_t, std::int64_t>{3, 17}, {16, 32}})
        for (const Activation& activation : {Activation(), relu, relu6}) {
          ConvProblem p = resolve_conv({n, c, h, w}, {k, c, 3, 3}, {.pads = {1, 1, 1, 1}});
          p.bias = posed++ % 2 == 0;
          p.activation = activation;
          p.max_pool = maxima_of_four;
          check_conv(planar_algorithms(), p, seed, threads);
          for (const Kernel* algorithm : planar_algorithms()) {
            CAPTURE(algorithm->name());
            CHECK(accepts(*algorithm, p) == algorithm->name().starts_with("winograd"));
          }
        }
}

// The largest sum need not give the largest value.
TEST_CASE("conv/max_pool/sizes_are_those_that_a_byte_holds") {
  const auto says = [](std::int64_t size) {
    const std::vector<std::int64_t> list{size, 2, 0, 0, 0, 0};
    return refusal_of(ErrorKind::internal, [&] { make_normalised_op("Conv", {{"max_pool", list}}, 2); });
  };
  CHECK((says(0) == "" && says(127) == ""));
  CHECK(says(128) == "convolution: maxima of [128,2,0,0,0,0]");
  CHECK(says(-1) == "convolution: maxima of [-1,2,0,0,0,0]");
}

TEST_CASE("conv/max_pool/of_an_activation_without_order_is_refused") {
  ConvProblem p = resolve_conv({1, 16, 8, 8}, {16, 16, 3, 3}, {.pads = {1, 1, 1, 1}});
  p.max_pool = maxima_of_four;
  p.activation.kind = Activation::Kind::silu;
  for (const Kernel* algorithm : planar_algorithms()) CHECK_FALSE(accepts(*algorithm, p));
}

}  // namespace lenslet::test
