// Winograd cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that. No
// bit of a result depends on how it is cut.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "ops/conv/conv.h"
#include "ops/conv/cuda/winograd_plan.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

/// One problem by one algorithm, in all cuts.
class EveryCut {
 public:
  EveryCut(std::string_view name, const ConvProblem& p, unsigned seed)
      : algorithm_(*find_kernel("Conv", DeviceKind::cuda, name)),
        p_(p),
        seed_(seed),
        device_(op_runner().profiles(1).at(0)) {
    std::mt19937 random(seed);
    data_ = make_conv_data(p, random);
    problem_ = pose(p, data_.w, data_.scale);
    const Offer offer = algorithm_.offer(*problem_, {.device = device_});
    REQUIRE_MESSAGE(offer.refusal.empty(), offer.refusal);
    candidate_ = offer.candidates.at(0);
  }

  void check(int m) {
    const WinogradPlan planned = plan_winograd(p_, m, device_);
    const int width = winograd_width(m, planned.r);
    // All tiles at once, a tail of one, and tails that leave blocks of the product in part.
    for (const int chunk : {planned.count, planned.count - 1, (planned.count + 2) / 3, 1}) {
      if (chunk < 1 || planned.count / chunk > 40) continue;
      WinogradPlan plan = planned;
      plan.chunk = chunk;
      for (const GemmTile tile : AllGemmTiles::all) {
        plan.tile = tile;
        for (const bool wide : {false, true}) {
          plan.wide_input = wide && p_.c % width == 0;
          plan.wide_output = wide && p_.k % width == 0;
          run(plan);
        }
      }
    }
    CHECK(cuts_ >= 10);
  }

 private:
  void run(const WinogradPlan& plan) {
    candidate_.config = plan.str();
    candidate_.workspace_bytes = (plan.v_floats() + plan.product_floats()) * sizeof(float);
    const Call call{.problem = *problem_, .kernel = algorithm_, .candidate = candidate_, .device = device_};
    const std::string where = fmt::format("{} on {} (seed {})", call.str(), p_.str(), seed_);
    const Tensor inputs[] = {data_.x, data_.w, data_.bias, data_.residual};
    const Tensor y = run_between_guards(op_runner(), call, inputs, where).at(0);
    if (++cuts_ == 1) {
      first_ = y;
      compare(y, data_, candidate_.tolerance, where, "winograd");
      return;
    }
    const bool same = std::memcmp(first_.data(), y.data(), y.bytes()) == 0;
    CHECK_MESSAGE(same, where, ": other bits than the first cut's");
    if (!same) compare(y, data_, candidate_.tolerance, where, "winograd");  // how far off
  }

  const Kernel& algorithm_;
  const ConvProblem p_;
  const unsigned seed_;
  const DeviceProfile device_;
  ConvData data_;
  std::unique_ptr<const Problem> problem_;
  Candidate candidate_;
  Tensor first_;
  int cuts_ = 0;
};

ConvProblem fused(ConvProblem problem, Activation activation) {
  problem.bias = problem.residual = true;
  problem.activation = activation;
  return problem;
}

const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};

/// Square filters of r: each pad from 0 to 3, odd sizes, channels that fill no step of the product and no wide thread,
/// several tiles of the product both ways, with and without what is fused.
void check_form(std::string_view name, int m, std::int64_t r) {
  const unsigned seed = random_seed();
  const ConvProblem problems[] = {
      resolve_conv({1, 16, r, r}, {4, 16, r, r}, {}),
      resolve_conv({2, 32, 17, 19}, {64, 32, r, r}, {.pads = {1, 1, 1, 1}}),
      fused(resolve_conv({3, 20, 13, 11}, {70, 20, r, r}, {.pads = {2, 2, 2, 2}}), relu),
      fused(resolve_conv({2, 7, 23, 14}, {33, 7, r, r}, {.pads = {3, 3, 3, 3}}), silu),
      resolve_conv({2, 64, 60, 60}, {64, 64, r, r}, {}),
      fused(resolve_conv({5, 36, 9, 21}, {132, 36, r, r}, {.pads = {0, 1, 2, 3}}), {}),
  };
  for (const ConvProblem& p : problems) EveryCut(name, p, seed).check(m);
}

}  // namespace

TEST_CASE("cuda/winograd/every_cut/f2_3x3") { check_form("winograd_f2", 2, 3); }
TEST_CASE("cuda/winograd/every_cut/f4_3x3") { check_form("winograd_f4", 4, 3); }
TEST_CASE("cuda/winograd/every_cut/f2_5x5") { check_form("winograd_f2_5x5", 2, 5); }
TEST_CASE("cuda/winograd/every_cut/f4_5x5") { check_form("winograd_f4_5x5", 4, 5); }
TEST_CASE("cuda/winograd/every_cut/f2_7x7") { check_form("winograd_f2_7x7", 2, 7); }

}  // namespace lenslet::test
