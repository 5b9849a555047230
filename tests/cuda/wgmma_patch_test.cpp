// wgmma_patch cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_format.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_patch_plan.h"
#include "ops/conv/cuda/wgmma_patch_slices_plan.h"
#include "ops/core/sum_tolerance.h"
#include "tests/cuda/wgmma_problems.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

/// LENSLET_TEST_WGMMA="units=4 filters=64": only cuts of which this is a part, to find out which one hangs.
bool asked_for(const std::string& config) {
  const char* const only = std::getenv("LENSLET_TEST_WGMMA");
  return only == nullptr || config.find(only) != std::string::npos;
}

Offer offer_of(const Problem& problem, const DeviceProfile& device, const Numerics& numerics) {
  return find_kernel("Conv", DeviceKind::cuda, "wgmma_patch")->offer(problem, {.device = device, .numerics = numerics});
}

/// Of both kernels, and what their bits depend on: where channels are cut, on the rows, where there are several of
/// them, on the groups that are taken together, and on the slices.
struct Cut {
  std::string config, bits;
};
std::vector<Cut> cuts_of(const ConvProblem& p) {
  std::vector<Cut> cuts;
  for (const WgmmaPatchPlan& plan : wgmma_patch_cuts(p))
    cuts.push_back({plan.str(), fmt::format("{} {}", plan.together, plan.groups == 1 ? 0 : plan.row_bytes)});
  for (const PatchSlicesPlan& plan : patch_slices_cuts(p))
    cuts.push_back({plan.str(), fmt::format("slices {}", plan.slices)});
  return cuts;
}

void check_cuts(ConvProblem p, unsigned seed) {
  const Kernel& algorithm = *find_kernel("Conv", DeviceKind::cuda, "wgmma_patch");
  const DeviceProfile device = op_runner().profiles(1).at(0);
  for (const char* const precision : {"fp16", "bf16", "tf32"}) {
    const Numerics numerics = parse_numerics(precision);
    std::mt19937 random(seed);
    const ConvData data = make_conv_data(p, random);
    p.storage = p.x_storage = numerics.storage;
    const auto stored = [&](const Tensor& tensor) { return tensor.empty() ? tensor : tensor.to_dtype(p.storage); };
    const Tensor inputs[] = {stored(data.x), data.w, data.bias, stored(data.residual)};
    const auto problem = pose(p, data.w, data.scale);
    const Offer offer = offer_of(*problem, device, numerics);
    REQUIRE_MESSAGE(offer.refusal.empty(), offer.refusal);
    Candidate candidate = offer.candidates.at(0);
    // What is stated; of 16 bits once more because x is rounded here, too, and what residual and y lose where they are
    // 5 rms large.
    const bool half = p.storage != DType::f32;
    const double tolerance = half ? 2 * candidate.tolerance + 10 * unit_roundoff(p.storage) : candidate.tolerance;
    std::map<std::string, std::pair<std::string, Tensor>> first_of;
    int checked = 0;
    for (const Cut& cut : cuts_of(p)) {
      candidate.config = cut.config;
      if (!asked_for(candidate.config)) continue;
      const std::string where = fmt::format("{} in {} (seed {}, {})", p.str(), precision, seed, candidate.config);
      INFO(where);
      const Call call{.problem = *problem, .kernel = algorithm, .candidate = candidate, .device = device};
      const Tensor y = run_between_guards(op_runner(), call, inputs, where).at(0);
      compare(y.to_dtype(DType::f32), data, tolerance, where);
      const std::pair<std::string, Tensor>& first = first_of.try_emplace(cut.bits, candidate.config, y).first->second;
      CHECK_MESSAGE(std::memcmp(first.second.data(), y.data(), y.bytes()) == 0, where, ": other bits than ",
                    first.first);
      if (++checked % 4 != 1 || !candidate.pitched_output) continue;
      const Format stated = candidate.outputs[0];
      candidate.outputs[0].pixel_pitch = aligned_channels(p.k, p.storage) + 16;
      const Tensor among_others = run_between_guards(op_runner(), call, inputs, where).at(0);
      CHECK_MESSAGE(std::memcmp(among_others.data(), y.data(), y.bytes()) == 0, where,
                    ": other bits among other channels");
      candidate.outputs[0] = stated;
    }
    CHECK_MESSAGE((checked > 0 || std::getenv("LENSLET_TEST_WGMMA") != nullptr), p.str(), ": no cut was checked");
  }
}

}  // namespace

// Each with one thing more than the one before: one unit without pads; pads; filters that do not fit a tile; channels
// in several groups; units that lie partly outside; images smaller than a unit.
TEST_CASE("cuda/wgmma_patch/one_thing_more") {
  if (!wgmma_runs_here()) return;
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  check_cuts(resolve_conv({1, 64, 8, 9}, {64, 64, 1, 2}, {}), seed);
  check_cuts(resolve_conv({1, 64, 9, 8}, {64, 64, 2, 1}, {}), seed);
  check_cuts(resolve_conv({1, 64, 10, 10}, {64, 64, 3, 3}, {}), seed);
  check_cuts(resolve_conv({1, 64, 8, 8}, {64, 64, 3, 3}, pad), seed);
  check_cuts(resolve_conv({1, 64, 8, 8}, {200, 64, 3, 3}, pad), seed);
  check_cuts(resolve_conv({1, 256, 8, 8}, {64, 256, 3, 3}, pad), seed);
  check_cuts(resolve_conv({2, 64, 13, 21}, {64, 64, 3, 3}, pad), seed);
  check_cuts(resolve_conv({3, 64, 7, 3}, {64, 64, 3, 3}, pad), seed);
}

// Rows of 128, 64 and 32 bytes, full or not, in one group or several.
TEST_CASE("cuda/wgmma_patch/rows") {
  if (!wgmma_runs_here()) return;
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  for (const std::int64_t c : {8, 16, 24, 32, 48, 72, 80, 136})
    check_cuts(activated(resolve_conv({2, c, 17, 15}, {40, c, 3, 3}, pad), relu), seed);
}

// Windows of any kind, and what is fused; more tiles than multiprocessors, so that all stages go round.
TEST_CASE("cuda/wgmma_patch/windows") {
  if (!wgmma_runs_here()) return;
  const unsigned seed = random_seed();
  const ConvProblem problems[] = {
      fused(resolve_conv({2, 72, 23, 22}, {136, 72, 3, 2}, {.pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({5, 40, 17, 19}, {264, 40, 3, 2}, {.dilation = {2, 3}, .pads = {2, 1, 1, 3}}), relu),
      activated(resolve_conv({1, 48, 20, 20}, {64, 48, 5, 5}, {.pads = {2, 2, 2, 2}}), hard_swish),
      fused(resolve_conv({2, 32, 17, 17}, {32, 32, 7, 7}, {.pads = {3, 3, 3, 3}}), relu),
      // Patches of which there is room for one stage, of several groups.
      fused(resolve_conv({2, 136, 17, 18}, {72, 136, 7, 7}, {.pads = {3, 3, 3, 3}}), clip),
      fused(resolve_conv({2, 80, 31, 18}, {264, 80, 5, 5}, {.dilation = {2, 2}, .pads = {4, 4, 4, 4}}), relu),
      activated(resolve_conv({1, 64, 17, 17}, {192, 64, 1, 7}, {.pads = {0, 3, 0, 3}}), relu),
      activated(resolve_conv({1, 64, 17, 17}, {192, 64, 7, 1}, {.pads = {3, 0, 3, 0}}), relu),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

// Slices of one group and of several, even and not, of one unit and of many, which lie partly outside; windows of whole
// lines of taps and others; filters that fill no tile.
TEST_CASE("cuda/wgmma_patch/slices") {
  if (!wgmma_runs_here()) return;
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const ConvProblem problems[] = {
      resolve_conv({1, 64, 14, 8}, {64, 64, 1, 3}, {.pads = {0, 1, 0, 1}}),
      resolve_conv({1, 128, 16, 10}, {128, 128, 3, 3}, {}),
      fused(resolve_conv({1, 512, 7, 7}, {136, 512, 3, 3}, pad), relu),
      fused(resolve_conv({2, 256, 15, 17}, {72, 256, 3, 3}, pad), hard_swish),
      fused(resolve_conv({1, 600, 14, 13}, {72, 600, 3, 3}, pad), silu),
      activated(resolve_conv({3, 328, 9, 20}, {72, 328, 2, 3}, {.dilation = {1, 2}, .pads = {1, 2, 0, 2}}), clip),
      activated(resolve_conv({2, 130, 15, 9}, {70, 130, 5, 5}, {.pads = {2, 2, 2, 2}}), relu),
  };
  for (const ConvProblem& p : problems) {
    REQUIRE(!patch_slices_cuts(p).empty());
    check_cuts(p, seed);
  }
}

// More tiles than multiprocessors: a block has several, and residuals of the next one come while this one leaves.
TEST_CASE("cuda/wgmma_patch/many_tiles") {
  if (!wgmma_runs_here()) return;
  const unsigned seed = random_seed();
  const ConvProblem problems[] = {
      fused(resolve_conv({12, 64, 60, 60}, {128, 64, 3, 3}, {.pads = {1, 1, 1, 1}}), relu),
      fused(resolve_conv({24, 16, 61, 60}, {64, 16, 3, 3}, {.pads = {1, 1, 1, 1}}), clip),
      fused(resolve_conv({16, 64, 56, 56}, {64, 64, 3, 3}, {.pads = {1, 1, 1, 1}}), hard_swish),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

// Channels and filters that fill no 16 bytes: pixels with room, which holds NaN.
TEST_CASE("cuda/wgmma_patch/room") {
  if (!wgmma_runs_here()) return;
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const ConvProblem problems[] = {
      resolve_conv({1, 65, 9, 8}, {63, 65, 2, 1}, {}),
      activated(resolve_conv({2, 100, 14, 13}, {100, 100, 3, 3}, pad), relu),
      fused(resolve_conv({2, 33, 23, 22}, {65, 33, 3, 2}, {.pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({2, 12, 30, 31}, {21, 12, 3, 3}, {.dilation = {2, 1}, .pads = {2, 1, 2, 1}}), relu),
      fused(resolve_conv({9, 6, 60, 61}, {6, 6, 6, 6}, {.pads = {3, 2, 2, 3}}), hard_swish),
      fused(resolve_conv({9, 24, 60, 61}, {10, 24, 5, 5}, {.pads = {2, 2, 2, 2}}), clip),
      activated(resolve_conv({3, 3, 9, 9}, {1, 3, 3, 3}, pad), relu),
      fused(resolve_conv({1, 270, 7, 7}, {131, 270, 3, 3}, pad), relu),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

// Units of lines of 16, 32 and 64 pixels, which are taken where they are fewer than those of 8x8; a residual, that is
// read where nothing is stored; tiles of 96 filters.
TEST_CASE("cuda/wgmma_patch/units_of_other_shapes") {
  if (!wgmma_runs_here()) return;
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}}, pad2{.pads = {2, 2, 2, 2}};
  const ConvProblem problems[] = {
      resolve_conv({1, 64, 4, 14}, {64, 64, 3, 3}, pad),
      fused(resolve_conv({3, 40, 28, 42}, {96, 40, 3, 3}, pad), relu),
      fused(resolve_conv({3, 72, 11, 10}, {80, 72, 5, 5}, pad2), silu),
      fused(resolve_conv({2, 24, 12, 9}, {190, 24, 7, 7}, {.pads = {3, 3, 3, 3}}), clip),
      resolve_conv({1, 64, 2, 30}, {64, 64, 3, 3}, pad),
      fused(resolve_conv({2, 32, 28, 28}, {96, 32, 5, 5}, pad2), relu),
      fused(resolve_conv({3, 72, 13, 26}, {50, 72, 3, 7}, {.pads = {1, 3, 1, 3}}), hard_swish),
      fused(resolve_conv({2, 100, 27, 30}, {21, 100, 3, 3}, pad), relu),
      resolve_conv({1, 64, 1, 64}, {64, 64, 1, 3}, {.pads = {0, 1, 0, 1}}),
      fused(resolve_conv({3, 48, 3, 125}, {288, 48, 3, 7}, {.pads = {1, 3, 1, 3}}), relu),
      fused(resolve_conv({20, 64, 28, 28}, {96, 64, 3, 3}, pad), relu),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

// Groups, by themselves and several together; windows of one tap, whose pixels are one line; filters that stay, and
// that do not.
TEST_CASE("cuda/wgmma_patch/several_groups") {
  if (!wgmma_runs_here()) return;
  const unsigned seed = random_seed();
  const auto grouped = [](std::int64_t groups, std::int64_t pad) {
    return ConvGeometry{.pads = {pad, pad, pad, pad}, .groups = groups};
  };
  const ConvProblem problems[] = {
      resolve_conv({1, 32, 8, 8}, {32, 16, 3, 3}, grouped(2, 1)),
      resolve_conv({1, 128, 8, 8}, {64, 64, 3, 3}, grouped(2, 1)),
      fused(resolve_conv({3, 144, 13, 21}, {48, 72, 3, 3}, grouped(2, 1)), relu),
      fused(resolve_conv({1, 48, 28, 29}, {264, 16, 5, 5}, grouped(3, 2)), silu),
      activated(resolve_conv({3, 80, 14, 14}, {320, 8, 3, 3}, grouped(10, 1)), relu),
      fused(resolve_conv({2, 64, 15, 17}, {96, 2, 3, 5}, grouped(32, 2)), clip),
      activated(resolve_conv({2, 32, 20, 20}, {96, 1, 7, 7}, grouped(32, 3)), hard_swish),
      fused(resolve_conv({3, 120, 9, 11}, {240, 40, 1, 1}, grouped(3, 0)), relu),
      activated(resolve_conv({2, 48, 33, 31}, {24, 2, 1, 1}, grouped(24, 0)), relu),
      fused(resolve_conv({2, 26, 19, 18}, {34, 13, 3, 3}, grouped(2, 1)), relu),
      fused(resolve_conv({2, 256, 22, 28}, {256, 64, 3, 3}, grouped(4, 1)), relu),
      activated(resolve_conv({12, 64, 28, 28}, {128, 8, 3, 3}, grouped(8, 1)), clip),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

// A unit reads what its windows need and nothing else: infinities of x stay where they are, also beside the image.
TEST_CASE("cuda/wgmma_patch/infinities_stay_where_they_are") {
  if (!wgmma_runs_here()) return;
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Kernel& algorithm = *find_kernel("Conv", DeviceKind::cuda, "wgmma_patch");
  const DeviceProfile device = op_runner().profiles(1).at(0);
  constexpr std::int64_t c = 136;  // three groups
  ConvProblem p = resolve_conv({1, c, 12, 12}, {8, c, 3, 3}, {});
  p.storage = p.x_storage = DType::f16;
  Tensor x(DType::f32, {1, c, 12, 12}), w(DType::f32, {8, c, 3, 3});
  std::ranges::fill(x.values<float>(), 1.0F);
  std::ranges::fill(w.values<float>(), 0.5F);
  x.values<float>()[0] = inf;  // of the first window alone
  const Tensor inputs[] = {x.to_dtype(DType::f16), w, Tensor(), Tensor()};
  const auto problem = pose(p, w);
  Candidate candidate = offer_of(*problem, device, {}).candidates.at(0);
  for (const Cut& cut : cuts_of(p)) {
    candidate.config = cut.config;
    if (!asked_for(candidate.config)) continue;
    CAPTURE(candidate.config);
    const Call call{.problem = *problem, .kernel = algorithm, .candidate = candidate, .device = device};
    const Tensor y = run_between_guards(op_runner(), call, inputs, candidate.config).at(0);
    const std::vector<double> got = oracle::from_tensor(y.to_format(formats::nchw)).values;
    REQUIRE(got.size() == 8 * 100);
    bool right = true;
    for (std::size_t i = 0; i < got.size(); ++i)
      right = right && (i % 100 == 0 ? got[i] == double{inf} : got[i] == c * 9 / 2.0);
    CHECK(right);
  }
}

}  // namespace lenslet::test
