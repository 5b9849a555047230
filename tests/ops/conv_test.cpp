// Every CPU convolution algorithm on every problem of conv_cases.h, against the double-precision oracle. An algorithm
// that is added to ops/conv/rows.cpp is tested here without a change.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <deque>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

constexpr int threads = 3;
constexpr std::string_view random_name = "random";

// One function for all cases: its registered name "conv/ALGORITHM/PROBLEM" says what to do.
void run_named_case() {
  const std::string_view name = doctest::getContextOptions()->currentTest->m_name;
  const std::size_t slash = name.rfind('/');
  const std::string_view algorithm_name = name.substr(5, slash - 5);
  const std::string_view problem_name = name.substr(slash + 1);
  const Kernel* algorithm = find_kernel("Conv", DeviceKind::cpu, algorithm_name);
  REQUIRE(algorithm != nullptr);
  const unsigned seed = random_seed();
  if (problem_name == random_name) {
    std::mt19937 random(seed);
    for (int i = 0; i < 40; ++i)
      check_conv(*algorithm, random_problem(random), seed + static_cast<unsigned>(i), threads);
    return;
  }
  for (const ConvCase& c : conv_cases())
    if (c.name == problem_name) return check_conv(*algorithm, c.problem, seed, threads);
  FAIL("no such problem");
}

/// All but "planes", which is for 3-D alone: volume_test.cpp.
std::vector<const Kernel*> planar_algorithms() {
  std::vector<const Kernel*> list;
  for (const Kernel* algorithm : kernels_of("Conv", DeviceKind::cpu))
    if (algorithm->name() != "planes") list.push_back(algorithm);
  return list;
}

int register_cases() {
  static std::deque<std::string> names;  // doctest keeps the pointers
  const auto add = [](const std::string& name) {
    names.push_back(name);
    doctest::detail::regTest(
        doctest::detail::TestCase(run_named_case, __FILE__, __LINE__, doctest::detail::TestSuite()) *
        names.back().c_str());
  };
  for (const Kernel* algorithm : planar_algorithms()) {
    for (const ConvCase& c : conv_cases()) add(fmt::format("conv/{}/{}", algorithm->name(), c.name));
    add(fmt::format("conv/{}/{}", algorithm->name(), random_name));
  }
  return 0;
}
[[maybe_unused]] const int registered = register_cases();

}  // namespace

TEST_CASE("conv/cases/unique_names") {
  std::set<std::string> names;
  for (const ConvCase& c : conv_cases()) CHECK_MESSAGE(names.insert(c.name).second, c.name);
}

TEST_CASE("conv/cases/each_algorithm_accepts_some") {
  for (const Kernel* algorithm : planar_algorithms()) {
    int accepted = 0;
    for (const ConvCase& c : conv_cases())
      if (accepts(*algorithm, c.problem)) ++accepted;
    CHECK_MESSAGE(accepted >= 10, std::string(algorithm->name()));
  }
}

// ConvProblem::max_pool: what can do it does all of these, the others refuse all. Of the last row and column of odd
// sizes nothing is stored.
TEST_CASE("conv/max_pool") {
  const Activation relu{Activation::Kind::relu, 0, 0}, relu6{Activation::Kind::clip, 0, 6};
  const unsigned seed = random_seed();
  for (const Kernel* algorithm : planar_algorithms()) {
    CAPTURE(algorithm->name());
    int taken = 0, posed = 0;
    for (const std::int64_t n : {1, 3})
      for (const auto& [h, w] : {std::pair<std::int64_t, std::int64_t>{2, 2}, {3, 9}, {8, 13}, {25, 24}})
        for (const auto& [c, k] : {std::pair<std::int64_t, std::int64_t>{3, 17}, {16, 32}})
          for (const Activation& activation : {Activation(), relu, relu6}) {
            ConvProblem p = resolve_conv({n, c, h, w}, {k, c, 3, 3}, {.pads = {1, 1, 1, 1}});
            p.bias = posed++ % 2 == 0;
            p.activation = activation;
            p.max_pool = maxima_of_four;
            check_conv(*algorithm, p, seed, threads);
            taken += accepts(*algorithm, p) ? 1 : 0;
          }
    CHECK((taken == 0 || taken == posed));
    CHECK((taken > 0) == algorithm->name().starts_with("winograd"));
  }
  ConvProblem silu = resolve_conv({1, 16, 8, 8}, {16, 16, 3, 3}, {.pads = {1, 1, 1, 1}});
  silu.max_pool = maxima_of_four;
  silu.activation.kind = Activation::Kind::silu;  // has no order: the largest sum need not give the largest value
  for (const Kernel* algorithm : planar_algorithms()) CHECK_FALSE(accepts(*algorithm, silu));
}

}  // namespace lenslet::test
