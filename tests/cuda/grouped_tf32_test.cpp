// grouped_tf32 cut in every way there is, and how it rounds: the planner takes one way a problem, conv_test.cpp checks
// that.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ops/conv/cuda/grouped_tf32_plan.h"
#include "tests/cuda/every_cut.h"
#include "tests/cuda/fused.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

ConvProblem problem(const Shape& x, std::int64_t group, std::int64_t r, std::int64_t s, ConvGeometry geometry,
                    Activation activation = {}) {
  geometry.groups = x[1] / group;
  ConvProblem p = resolve_conv(x, {x[1], group, r, s}, geometry);
  p.bias = true;
  p.activation = activation;
  return p;
}

}  // namespace

TEST_CASE("cuda/grouped_tf32/every_cut") {
  const unsigned seed = random_seed();
  const ConvGeometry same{.pads = {1, 1, 1, 1}}, half{.stride = {2, 2}, .pads = {1, 1, 1, 1}};
  // Groups of every width; tiles and blocks of channels in part; strides that are known and others, dilations, windows
  // of other heights, pads of different width; more blocks than multiprocessors.
  ConvProblem problems[] = {
      problem({2, 72, 19, 21}, 4, 3, 3, same, relu),
      problem({1, 136, 33, 18}, 8, 3, 3, half, silu),
      problem({1, 72, 11, 9}, 12, 3, 3, same),
      problem({2, 160, 14, 14}, 16, 3, 3, same, relu),
      problem({1, 168, 15, 33}, 24, 3, 3, half, relu),
      problem({3, 160, 7, 7}, 32, 3, 3, same, silu),
      problem({1, 120, 10, 9}, 20, 3, 3, half, relu),
      problem({2, 112, 7, 9}, 56, 3, 3, same),
      problem({1, 144, 9, 17}, 48, 3, 3, half),
      problem({1, 192, 14, 14}, 64, 3, 3, same, relu),
      problem({1, 48, 20, 23}, 16, 5, 3, {.stride = {3, 2}, .dilation = {1, 2}, .pads = {2, 1, 0, 3}}, relu),
      problem({1, 64, 13, 40}, 8, 1, 2, {.stride = {2, 3}}),
      problem({40, 128, 17, 17}, 4, 3, 3, same, relu),
  };
  for (std::size_t i = 0; i < std::size(problems); ++i) {
    ConvProblem& p = problems[i];
    p.residual = i % 2 == 1;
    check_cuts("grouped_tf32", p, "tf32", seed, [](const Planned& planned) {
      std::vector<Cut> cuts;
      for (const GroupedTf32Cut& cut : grouped_tf32_cuts(planned.problem))
        if (!planned.device.refuse_shared(cut.shared_bytes())) cuts.push_back({cut.str()});
      return cuts;
    });
  }
}

TEST_CASE("cuda/grouped_tf32/x_is_rounded_to_nearest") {
  check_rounds_to_tf32("grouped_tf32",
                       resolve_conv({2, 64, 12, 12}, {64, 16, 3, 3}, {.pads = {1, 1, 1, 1}, .groups = 4}));
}

}  // namespace lenslet::test
