// What kernels offer besides the configuration that the rule takes: no device needed. On one, cuda/all_candidates/*
// run them.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/error.h"
#include "ops/conv/conv.h"
#include "ops/core/tilings.h"
#include "tests/expect_error.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

struct Named {
  std::string text;
  double us = 0;
  const std::string& str() const { return text; }
};

/// These rules do not go by the estimates of the candidates.
bool goes_by_estimate(std::string_view algorithm) {
  constexpr std::array others{"depthwise", "stem", "direct_tile", "direct_tile_padded", "few_pixels", "im2col"};
  return std::ranges::find(others, algorithm) == others.end();
}

/// How many there are. `reference`: is the device the one that the rules go by?
std::size_t check_all(const Kernel& kernel, const Problem& node, const Target& target, bool reference) {
  const Offer offer = kernel.offer(node, target);
  const std::vector<Candidate> all = kernel.all_candidates(node, target);
  CAPTURE(std::string(kernel.name()));
  CHECK(all.empty() == !offer.refusal.empty());
  if (all.empty()) return 0;
  const Candidate& first = offer.candidates.at(0);
  CHECK(all[0].config == first.config);
  CHECK(all[0].estimated_us == first.estimated_us);
  std::set<std::string> configs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Candidate& c = all[i];
    CAPTURE(c.config);
    CHECK(configs.insert(c.config).second);
    CHECK((c.estimated_us > 0 && c.tolerance == first.tolerance));
    CHECK((c.inputs == first.inputs && c.outputs == first.outputs));
    CHECK((c.reads == first.reads && c.pitched_output == first.pitched_output));
    if (reference && i > (goes_by_estimate(kernel.name()) ? 0 : 1)) CHECK(c.estimated_us >= all[i - 1].estimated_us);
    CHECK(kernel.bind({node, c, target.device})->workspace_bytes() == c.workspace_bytes);
    if (const auto blob = kernel.blob(node, c)) CHECK(blob->bytes > 0);
  }
  return all.size();
}

std::vector<ConvProblem> problems() {
  std::vector<ConvProblem> all =
      convs({"1x3x224x224 -> 64, 7x7 s2 p3 g1 +bias +relu", "8x64x56x56 -> 64, 3x3 s1 p1 g1 +bias +relu",
             "1x512x7x7 -> 512, 3x3 s1 p1 g1 +bias +relu", "2x12x64x64 -> 20, 15x15 s1 p7 g1 +bias +relu",
             "4x32x40x40 -> 48, 5x5 s1 p2 g1 +bias +relu", "8x128x28x28 -> 128, 3x3 s1 p1 g128 +bias +relu",
             "8x128x28x28 -> 128, 3x3 s1 p1 g32 +bias +relu", "64x256x14x14 -> 1024, 1x1 s1 p0 g1 +bias +relu",
             "1x1280x1x1 -> 1000, 1x1 s1 p0 g1 +bias", "1x2048x7x7 -> 512, 1x1 s1 p0 g1 +bias +residual"});
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) all.push_back(random_problem(random));
  return all;
}

}  // namespace

TEST_CASE("all_candidates/the_one_offered_is_first_and_the_others_bind") {
  DeviceProfile hopper = reference_gpu(), ampere = hopper;
  hopper.cublas_reason.clear();
  ampere.capability = 80;
  ampere.units = 108;
  ampere.clusters = false;
  ampere.shared_bytes_per_block = 163 << 10;
  ampere.shared_bytes_per_unit = 164 << 10;
  std::map<std::string_view, std::size_t> most;
  for (ConvProblem p : problems()) {
    CAPTURE(p.str());
    for (const char* const precision : {"fp32", "tf32", "fp16"}) {
      const Numerics numerics = parse_numerics(precision);
      p.storage = p.x_storage = numerics.storage;
      const auto node = pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s}));
      for (const Kernel* const kernel : kernels_of("Conv", DeviceKind::cuda))
        for (const DeviceProfile* const device : {&hopper, &ampere}) {
          const std::size_t count = check_all(*kernel, *node, {*device, numerics}, device == &hopper);
          most[kernel->name()] = std::max(most[kernel->name()], count);
        }
      if (numerics != Numerics()) continue;
      for (const Kernel* const kernel : kernels_of("Conv", DeviceKind::cpu))
        for (const int threads : {1, 6}) check_all(*kernel, *node, {cpu_profile(threads)}, true);
    }
  }
  for (const char* const name :
       {"depthwise", "stem", "winograd_f4", "winograd_f2", "winograd_f4_5x5", "fft", "few_pixels", "wgmma_halo",
        "wgmma_gemm", "wgmma_tf32", "implicit_gemm", "implicit_gemm_nchw", "mma_gemm", "direct_tile"}) {
    CAPTURE(name);
    CHECK(most[name] >= 4);
  }
}

// Filters that are computed in the run as well.
TEST_CASE("all_candidates/im2col_gives_the_same_bits_in_chunks_and_whole") {
  const Kernel& kernel = *find_kernel("Conv", DeviceKind::cpu, "im2col");
  std::mt19937 random(1);
  const ConvProblem p = convs({"2x20x9x8 -> 24, 3x3 s1 p1 g2 +bias +relu"}).at(0);
  const ConvData data = make_conv_data(p, random);
  const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
  const auto node = pose(p, data.w, data.scale);
  for (const DeviceProfile& device : {cpu_profile(1), cpu_profile(3)}) {
    const std::vector<Candidate> all = kernel.all_candidates(*node, {device});
    REQUIRE(all.size() == 2);
    CHECK(all[0].config.ends_with("whole=yes") == (device.units > 1));
    CHECK(all[1].config.ends_with("whole=yes") == (device.units == 1));
    for (const Candidate& candidate : all) {
      const Call call{.problem = *node, .kernel = kernel, .candidate = candidate, .device = device};
      compare(run_between_guards(cpu_op_runner(), call, inputs, call.str()).at(0), data, candidate.tolerance,
              call.str());
    }
  }
}

TEST_CASE("all_candidates/the_first_of_equals_is_the_best") {
  const std::vector<Named> tilings{{"a", 2}, {"b", 1}, {"c", 3}, {"d", 1}};
  const auto us = [](const Named& one) { return one.us; };
  CHECK(best_tiling(tilings, us)->text == "b");
  CHECK(!best_tiling(std::vector<Named>(), us));
  std::string order;
  for (const Named& one : by_estimate(tilings, us)) order += one.text;
  CHECK(order == "bdac");
  CHECK(find_tiling(tilings, "c").us == 3);
  CHECK_ERROR((void)find_tiling(tilings, "e"), invalid_argument,
              "configuration 'e': no kernel has this configuration for this problem; there are: a, b, c, d");
}

}  // namespace lenslet::test
