// Every configuration that a convolution algorithm offers for tuning, against the double-precision oracle. The rule
// takes the first, which conv_test.cpp checks.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ops/conv/conv.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

/// Runs `most` candidates of each algorithm, drawn, beside the oracle.
void check_candidates(ConvProblem p, const char* precision, unsigned seed, std::size_t most) {
  const Numerics numerics = parse_numerics(precision);
  p.storage = p.x_storage = numerics.storage;
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
  const auto node = pose(p, data.w, data.scale);
  for (const Kernel* const kernel : kernels_of("Conv", DeviceKind::cuda)) {
    if (!accepts(*kernel, p, numerics)) continue;
    // Those of float32 do the same in TF32, but for im2col_gemm.
    if (numerics.storage == DType::f32 && numerics != Numerics() && accepts(*kernel, p)) continue;
    const OnDevice on_device(*kernel, *node, numerics, inputs, fmt::format("{} (seed {})", p.str(), seed));
    std::vector<Candidate> all = kernel->all_candidates(*node, {.device = on_device.device(), .numerics = numerics});
    CHECK(all.at(0).config == on_device.planned().config);
    std::shuffle(all.begin(), all.end(), random);
    for (std::size_t i = 0; i < std::min(most, all.size()); ++i) {
      if (!asked_for(all[i].config)) continue;
      const OnDevice::Ran ran = on_device.run(all[i]);
      compare(ran.y, data, all[i].tolerance, ran.where, ran.call);
    }
  }
}

}  // namespace

TEST_CASE("cuda/all_candidates/each_is_right") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  const std::size_t most = reduced() ? 4 : 60;
  std::vector<ConvProblem> problems = convs(
      {"2x3x37x33 -> 40, 7x7 s2 p3 g1 +bias +relu", "2x64x19x21 -> 72, 3x3 s1 p1 g1 +bias +relu",
       "1x16x40x41 -> 24, 5x5 s1 p2 g1 +bias", "3x40x17x18 -> 40, 3x3 s1 p1 g40 +bias +relu",
       "1x128x14x14 -> 128, 3x3 s1 p1 g8 +bias +residual", "3x256x1x1 -> 100, 1x1 s1 p0 g1 +bias +relu",
       "9x256x1x1 -> 2100, 1x1 s1 p0 g1 +bias", "1x512x7x7 -> 96, 1x1 s1 p0 g1 +bias", "2x8x30x30 -> 6, 1x1 s1 p0 g1"});
  for (int i = 0; i < (reduced() ? 4 : 40); ++i) problems.push_back(random_problem(random));
  for (const char* const precision : {"fp32", "tf32", "fp16", "bf16"})
    for (std::size_t i = 0; i < problems.size(); ++i)
      check_candidates(problems[i], precision, seed + static_cast<unsigned>(i), i < 9 ? most : most / 4);
}

}  // namespace lenslet::test
