// Every CUDA convolution algorithm on every problem of tests/ops/conv_cases.h and on drawn ones, against the
// double-precision oracle. An algorithm that is added to choose.cpp is tested here without a change.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "ops/conv/choose.h"
#include "tests/cuda/device_block.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"

namespace lenslet::test {
namespace {

DeviceBlock upload(const std::vector<float>& values) { return {values.data(), values.size() * sizeof(float)}; }

void check(const cuda::Session& session, const ConvAlgorithm& algorithm, const ConvProblem& p, unsigned seed) {
  const std::optional<std::string> refusal = algorithm.refuse(p);
  if (refusal) {
    CHECK_MESSAGE(!refusal->empty(), algorithm.name(), " refuses ", p.str(), " without a reason");
    return;
  }
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  const ConvProblem seen = algorithm.wants_padded() ? p.with_explicit_padding() : p;
  const std::vector<float> x_host =
      in_layout(algorithm.wants_padded() ? zero_padded(data.x, p) : data.x, algorithm.format());
  const std::vector<float> residual = p.residual ? in_layout(data.residual, algorithm.format()) : std::vector<float>{};
  DeviceBlock x = upload(x_host);
  DeviceBlock bias = upload(p.bias ? in_layout(data.bias, formats::nchw) : std::vector<float>{});
  const std::unique_ptr<PreparedFilter> filter =
      algorithm.prepare(seen, {data.w.values<float>().data(), data.scale.empty() ? nullptr : data.scale.data()});
  REQUIRE(filter != nullptr);
  const auto bytes = static_cast<std::size_t>(p.n * p.k * p.p * p.q) * sizeof(float);

  for (const bool in_place : {false, true}) {
    if (in_place && !p.residual) continue;
    const std::string where = fmt::format("{} on {} (seed {}{}{})", algorithm.name(), p.str(), seed,
                                          in_place ? ", in place" : "", data.scale.empty() ? "" : ", scaled");
    DeviceBlock added = upload(residual);
    DeviceBlock y(bytes);
    if (in_place) cuda::copy_to_device(y.data(), residual.data(), bytes);
    DeviceBlock workspace(algorithm.workspace_bytes(seen, 1));
    const auto floats = [](DeviceBlock& block) { return reinterpret_cast<float*>(block.data()); };
    const float* residual_data = nullptr;
    if (p.residual) residual_data = in_place ? floats(y) : floats(added);
    std::vector<std::byte> first;
    // Twice over the same workspace: what the first run leaves in it must not matter, and the bits must repeat.
    for (int i = 0; i < (in_place ? 1 : 2); ++i) {
      algorithm.run({.problem = seen,
                     .x = floats(x),
                     .filter = filter.get(),
                     .bias = p.bias ? floats(bias) : nullptr,
                     .residual = residual_data,
                     .y = floats(y),
                     .workspace = {workspace.data(), workspace.bytes()},
                     .cuda = &session.context()});
      session.stream().synchronize();
      if (i == 0)
        first = y.read();
      else
        CHECK_MESSAGE(first == y.read(), where, ": the second run gave other bits");
    }
    compare(algorithm, p, data, reinterpret_cast<float*>(first.data()), where);
    CHECK_MESSAGE(y.intact(), where, ": wrote outside of y");
    CHECK_MESSAGE(workspace.intact(), where, ": wrote outside of the workspace");
    CHECK_MESSAGE(x.intact(), where, ": wrote outside of x");
  }
}

// compute-sanitizer slows kernels a hundredfold: gpu_check.sh then asks for every seventh problem only.
int stride_of_cases() {
  const char* const reduced = std::getenv("LENSLET_TEST_REDUCED");
  return reduced == nullptr ? 1 : 7;
}

// Registered as "cuda/conv/ALGORITHM".
void run_named_case() {
  const std::string name = doctest::getContextOptions()->currentTest->m_name;
  const ConvAlgorithm* algorithm = find_conv_algorithm(DeviceKind::cuda, name.substr(name.rfind('/') + 1));
  REQUIRE(algorithm != nullptr);
  const cuda::Session session(0);
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const int stride = stride_of_cases();
  int index = 0, accepted = 0;
  for (const ConvCase& c : conv_cases()) {
    if (algorithm->refuse(c.problem)) continue;
    ++accepted;
    if (index++ % stride == 0) check(session, *algorithm, c.problem, seed);
  }
  CHECK(accepted >= 5);
  for (int i = 0; i < 60 / stride; ++i)
    check(session, *algorithm, random_problem(random), seed + static_cast<unsigned>(i));
}

int register_cases() {
  static std::deque<std::string> names;  // doctest keeps the pointers
  for (const ConvAlgorithm* algorithm : conv_algorithms(DeviceKind::cuda)) {
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
