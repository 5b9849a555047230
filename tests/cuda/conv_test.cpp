// Every CUDA convolution algorithm on every problem of tests/ops/conv_cases.h and on drawn ones, against the
// double-precision oracle. An algorithm that is added to ops/conv/rows.cpp is tested here without a change.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <string>

#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"

namespace lenslet::test {
namespace {

// compute-sanitizer slows kernels a hundredfold: gpu_check.sh then asks for every seventh problem only.
int stride_of_cases() {
  const char* const reduced = std::getenv("LENSLET_TEST_REDUCED");
  return reduced == nullptr ? 1 : 7;
}

// Registered as "cuda/conv/ALGORITHM".
void run_named_case() {
  const std::string name = doctest::getContextOptions()->currentTest->m_name;
  const Kernel* algorithm = find_kernel("Conv", DeviceKind::cuda, name.substr(name.rfind('/') + 1));
  REQUIRE(algorithm != nullptr);
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const int stride = stride_of_cases();
  int index = 0, accepted = 0;
  for (const ConvCase& c : conv_cases()) {
    if (!accepts(*algorithm, c.problem)) continue;
    ++accepted;
    if (index++ % stride == 0) check_conv(*algorithm, c.problem, seed, 1);
  }
  CHECK(accepted >= 5);
  for (int i = 0; i < 60 / stride; ++i)
    check_conv(*algorithm, random_problem(random), seed + static_cast<unsigned>(i), 1);
}

int register_cases() {
  static std::deque<std::string> names;  // doctest keeps the pointers
  for (const Kernel* algorithm : kernels_of("Conv", DeviceKind::cuda)) {
    names.push_back(fmt::format("cuda/conv/{}", algorithm->name()));
    doctest::detail::regTest(
        doctest::detail::TestCase(run_named_case, __FILE__, __LINE__, doctest::detail::TestSuite()) *
        names.back().c_str());
  }
  return 0;
}
[[maybe_unused]] const int registered = register_cases();

}  // namespace
}  // namespace lenslet::test
