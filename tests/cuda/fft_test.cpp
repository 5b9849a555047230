// fft cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that. Of tiles
// of one size no bit of a result depends on how it is cut.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "ops/conv/conv.h"
#include "ops/conv/cuda/fft_plan.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

void check_every_cut(const ConvProblem& p, unsigned seed) {
  const Kernel& algorithm = *find_kernel("Conv", DeviceKind::cuda, "fft");
  const DeviceProfile device = op_runner().profiles(1).at(0);
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  const auto problem = pose(p, data.w, data.scale);
  const Offer offer = algorithm.offer(*problem, {.device = device});
  REQUIRE_MESSAGE(offer.refusal.empty(), offer.refusal);
  Candidate candidate = offer.candidates.at(0);
  int cuts = 0;
  for (const int size : fft_sizes) {
    if (std::max(p.r, p.s) > largest_fft_window(size)) continue;
    Tensor first;
    const FftPlan planned = plan_fft(p, size, device);
    // All tiles at once, and in chunks that leave tails and blocks of the products in part.
    for (const int chunk : {planned.count, (planned.count + 2) / 3, 1}) {
      if (chunk < 1 || planned.count / chunk > 40) continue;
      FftPlan plan = planned;
      plan.chunk = chunk;
      for (std::size_t tile = 0; tile < fft_product_tiles.size(); ++tile) {
        if (chunk != (planned.count + 2) / 3 && tile > 0) break;
        plan.tile = static_cast<FftProductTile>(tile);
        candidate.config = plan.str();
        candidate.workspace_bytes = (plan.v_floats() + plan.product_floats()) * sizeof(float);
        const Call call{.problem = *problem, .kernel = algorithm, .candidate = candidate, .device = device};
        const std::string where = fmt::format("{} on {} (seed {})", call.str(), p.str(), seed);
        const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
        const Tensor y = run_between_guards(op_runner(), call, inputs, where).at(0);
        ++cuts;
        if (first.bytes() == 0) {
          first = y;
          compare(y, data, candidate.tolerance, where, "fft");
          continue;
        }
        const bool same = std::memcmp(first.data(), y.data(), y.bytes()) == 0;
        CHECK_MESSAGE(same, where, ": other bits than the first cut's");
        if (!same) compare(y, data, candidate.tolerance, where, "fft");  // how far off
      }
    }
  }
  CHECK(cuts >= 5);
}

ConvProblem fused(ConvProblem problem, Activation activation) {
  problem.bias = problem.residual = true;
  problem.activation = activation;
  return problem;
}

const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};

}  // namespace

// Windows that are not square and the largest, pads up to the window, one output, odd sizes, channels that fill no step
// of the products, several tiles of theirs both ways, with and without what is fused.
TEST_CASE("cuda/fft/every_cut") {
  const unsigned seed = random_seed();
  const ConvProblem problems[] = {
      resolve_conv({1, 16, 5, 5}, {4, 16, 5, 5}, {}),
      resolve_conv({2, 32, 47, 39}, {64, 32, 5, 7}, {.pads = {1, 1, 1, 1}}),
      fused(resolve_conv({3, 20, 33, 31}, {70, 20, 9, 4}, {.pads = {8, 3, 8, 3}}), relu),
      fused(resolve_conv({2, 7, 23, 44}, {33, 7, 11, 11}, {.pads = {3, 5, 0, 10}}), silu),
      resolve_conv({1, 3, 50, 50}, {5, 3, 17, 17}, {}),
      fused(resolve_conv({35, 12, 9, 21}, {132, 12, 5, 5}, {.pads = {0, 1, 2, 3}}), {}),
  };
  // compute-sanitizer slows kernels a hundredfold.
  const std::size_t step = std::getenv("LENSLET_TEST_REDUCED") == nullptr ? 1 : 3;
  for (std::size_t i = 0; i < std::size(problems); i += step) check_every_cut(problems[i], seed);
}

}  // namespace lenslet::test
