// Every CPU convolution algorithm on every problem of conv_cases.h, against the double-precision oracle. An algorithm
// that is added to choose.cpp is tested here without a change.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/choose.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"

namespace lenslet::test {
namespace {

constexpr std::size_t guard_elems = 64;

/// 64-byte aligned floats, all NaN, between guards that are NaN too: what reads outside of its buffer and uses it shows
/// in the result, what writes outside of it is seen by intact().
class Buffer {
 public:
  explicit Buffer(std::size_t elems)
      : memory_(DType::f32, Shape{static_cast<std::int64_t>(elems + 2 * guard_elems)}), elems_(elems) {
    std::memset(memory_.data(), 0xFF, memory_.bytes());
  }
  explicit Buffer(const std::vector<float>& values) : Buffer(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
  float* data() { return memory_.values<float>().data() + guard_elems; }
  std::size_t elems() const { return elems_; }
  bool intact() const {
    const auto* bytes = static_cast<const unsigned char*>(memory_.data());
    const auto untouched = [](const unsigned char* from) {
      return std::all_of(from, from + guard_elems * sizeof(float), [](unsigned char b) { return b == 0xFF; });
    };
    return untouched(bytes) && untouched(bytes + (guard_elems + elems_) * sizeof(float));
  }

 private:
  Tensor memory_;
  std::size_t elems_;
};

void check(const ConvAlgorithm& algorithm, const ConvProblem& p, unsigned seed) {
  const std::optional<std::string> refusal = algorithm.refuse(p);
  if (refusal) {
    CHECK_MESSAGE(!refusal->empty(), algorithm.name(), " refuses ", p.str(), " without a reason");
    return;
  }
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  const ConvProblem seen = algorithm.wants_padded() ? p.with_explicit_padding() : p;
  Buffer x(in_layout(algorithm.wants_padded() ? zero_padded(data.x, p) : data.x, algorithm.format()));
  Buffer bias(p.bias ? in_layout(data.bias, formats::nchw) : std::vector<float>{});
  const std::vector<float> residual = p.residual ? in_layout(data.residual, algorithm.format()) : std::vector<float>{};
  const std::unique_ptr<PreparedFilter> filter =
      algorithm.prepare(seen, {data.w.values<float>().data(), data.scale.empty() ? nullptr : data.scale.data()});
  REQUIRE(filter != nullptr);
  const auto elems = static_cast<std::size_t>(p.n * p.k * p.p * p.q);

  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const bool in_place : {false, true}) {
      if (in_place && !p.residual) continue;
      const std::string where =
          fmt::format("{} on {} (seed {}, {} threads{}{})", algorithm.name(), p.str(), seed, threads,
                      in_place ? ", in place" : "", data.scale.empty() ? "" : ", scaled");
      Buffer added(residual);
      Buffer y(elems);
      if (in_place) std::copy(residual.begin(), residual.end(), y.data());
      const std::size_t workspace_bytes = algorithm.workspace_bytes(seen, threads);
      Buffer workspace((workspace_bytes + sizeof(float) - 1) / sizeof(float));
      const float* residual_data = nullptr;
      if (p.residual) residual_data = in_place ? y.data() : added.data();
      algorithm.run({.problem = seen,
                     .x = x.data(),
                     .filter = filter.get(),
                     .bias = p.bias ? bias.data() : nullptr,
                     .residual = residual_data,
                     .y = y.data(),
                     .workspace = {reinterpret_cast<std::byte*>(workspace.data()), workspace_bytes},
                     .pool = &pool});
      compare(algorithm, p, data, y.data(), where);
      CHECK_MESSAGE(y.intact(), where, ": wrote outside of y");
      CHECK_MESSAGE(workspace.intact(), where, ": wrote outside of the workspace");
      CHECK_MESSAGE(x.intact(), where, ": wrote outside of x");
    }
  }
}

constexpr std::string_view random_name = "random";

// One function for all cases: its registered name "conv/ALGORITHM/PROBLEM" says what to do.
void run_named_case() {
  const std::string_view name = doctest::getContextOptions()->currentTest->m_name;
  const std::size_t slash = name.rfind('/');
  const std::string_view algorithm_name = name.substr(5, slash - 5);
  const std::string_view problem_name = name.substr(slash + 1);
  const ConvAlgorithm* algorithm = find_conv_algorithm(DeviceKind::cpu, algorithm_name);
  REQUIRE(algorithm != nullptr);
  const unsigned seed = std::random_device{}();
  if (problem_name == random_name) {
    std::mt19937 random(seed);
    for (int i = 0; i < 40; ++i) check(*algorithm, random_problem(random), seed + static_cast<unsigned>(i));
    return;
  }
  for (const ConvCase& c : conv_cases())
    if (c.name == problem_name) return check(*algorithm, c.problem, seed);
  FAIL("no such problem");
}

int register_cases() {
  static std::deque<std::string> names;  // doctest keeps the pointers
  const auto add = [](const std::string& name) {
    names.push_back(name);
    doctest::detail::regTest(
        doctest::detail::TestCase(run_named_case, __FILE__, __LINE__, doctest::detail::TestSuite()) *
        names.back().c_str());
  };
  for (const ConvAlgorithm* algorithm : conv_algorithms(DeviceKind::cpu)) {
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
  for (const ConvAlgorithm* algorithm : conv_algorithms(DeviceKind::cpu)) {
    int accepted = 0;
    for (const ConvCase& c : conv_cases())
      if (!algorithm->refuse(c.problem)) ++accepted;
    CHECK_MESSAGE(accepted >= 10, algorithm->name());
  }
}

}  // namespace lenslet::test
