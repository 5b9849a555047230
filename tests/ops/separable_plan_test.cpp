// separable's plans and refusals: plain arithmetic, needs no device.

#include "ops/conv/cuda/separable_plan.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/convert.h"
#include "lenslet/error.h"
#include "ops/core/kernel.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

SeparableProblem problem(std::int64_t n, std::int64_t c, std::int64_t size, std::int64_t k, std::int64_t stride = 1,
                         std::int64_t window = 3, DType storage = DType::f16) {
  ConvGeometry geometry{.stride = {stride, stride}};
  geometry.pads.fill(window / 2);
  geometry.groups = c;
  SeparableProblem problem;
  ConvProblem &d = problem.depthwise, &p = problem.pointwise;
  d = resolve_conv({n, c, size, size}, {c, 1, window, window}, geometry);
  p = resolve_conv({n, c, d.p, d.q}, {k, c, 1, 1}, {});
  d.bias = p.bias = true;
  d.activation = {Activation::Kind::clip, 0, 6};
  for (ConvProblem* half : {&d, &p}) half->storage = half->x_storage = storage;
  return problem;
}

const SeparableProblem some_problems[] = {
    problem(1, 32, 112, 16),      problem(64, 96, 112, 24, 2), problem(8, 144, 56, 24), problem(1, 576, 14, 96),
    problem(64, 576, 14, 160, 2), problem(1, 960, 7, 320),     problem(3, 58, 28, 58),  problem(2, 8, 5, 1000)};

std::string refusal(const SeparableProblem& of, bool tf32 = true) {
  const Kernel& kernel = *find_kernel("SeparableConv", DeviceKind::cuda, "separable");
  const Tensor taps = random_f32({of.depthwise.c, 1, of.depthwise.r, of.depthwise.s}, 1);
  const Tensor bias = random_f32({of.depthwise.c}, 2), filter = random_f32({of.pointwise.k, of.pointwise.c, 1, 1}, 3);
  const Tensor filter_bias = random_f32({of.pointwise.k}, 4);
  return kernel
      .offer(*pose(of, taps, bias, filter, filter_bias),
             {.device = reference_gpu(), .numerics = parse_numerics(tf32 ? "tf32" : "fp32")})
      .refusal;
}

}  // namespace

TEST_CASE("separable_plan/tilings_cover_the_problem") {
  const DeviceProfile& device = reference_gpu();
  for (const SeparableProblem& p : some_problems) {
    const std::vector<SeparableTiling> tilings = separable_tilings(p, device);
    CHECK(tilings.size() >= 4);
    const SeparableSizes sizes(p);
    for (const SeparableTiling& tiling : tilings) {
      const std::string where = p.str() + ", " + tiling.str();
      CHECK_MESSAGE(separable_has(tiling.columns, tiling.tiles, p.depthwise.stride_h), where);
      CHECK_MESSAGE(tiling.warps() <= separable_most_warps(p.depthwise.stride_h, tiling.columns, tiling.tiles), where);
      CHECK_MESSAGE(sizes.shared_bytes(tiling) <= device.shared_bytes_per_block, where);
      CHECK_MESSAGE(sizes.items(tiling) * 2 * tiling.columns >= sizes.n * sizes.p * sizes.q, where);
      CHECK_MESSAGE(sizes.turns(tiling) * tiling.pixel_warps * 8 >= sizes.items(tiling), where);
      CHECK_MESSAGE(sizes.warp_chunks(tiling) * tiling.channel_warps * sizes.chunk >= sizes.c, where);
      CHECK_MESSAGE(sizes.groups(tiling) * tiling.tiles * 8 >= sizes.k, where);
      CHECK_MESSAGE((tiling.blocks >= 1 && tiling.blocks <= sizes.turns(tiling)), where);
      CHECK_MESSAGE((read_separable_tiling(p, tiling.str()) == tiling), where);
      CHECK_MESSAGE(estimate_separable_us(p, tiling, device) >= p.bytes() / device.bytes_per_us, where);
    }
  }
}

// The times are from an H100.
TEST_CASE("separable_plan/estimates_and_times") {
  struct Row {
    SeparableProblem problem;
    double us;
  };
  const Row rows[] = {{problem(1, 32, 112, 16), 2.82},
                      {problem(1, 96, 112, 24, 2), 3.52},
                      {problem(1, 192, 28, 32), 3.49},
                      {problem(1, 384, 14, 96), 4.08},
                      {problem(8, 96, 112, 24, 2), 6.69},
                      {problem(8, 384, 14, 64), 4.80},
                      {problem(64, 32, 112, 16), 45.8},
                      {problem(64, 96, 112, 24, 2), 67.1},
                      {problem(64, 144, 56, 24), 48.3},
                      {problem(64, 144, 56, 32, 2), 28.5},
                      {problem(64, 192, 28, 32), 14.4},
                      {problem(64, 960, 7, 160), 29.3},
                      {problem(1, 192, 28, 32, 1, 3, DType::f32), 4.33},
                      {problem(64, 144, 56, 24, 1, 3, DType::f32), 87.1},
                      {problem(64, 192, 28, 32, 1, 3, DType::f32), 30.9}};
  for (const Row& row : rows) {
    const SeparableTiling tiling = plan_separable(row.problem, reference_gpu()).value();
    const double us = estimate_separable_us(row.problem, tiling, reference_gpu());
    CHECK_MESSAGE((us > 0.7 * row.us && us < 1.4 * row.us), row.problem.str(), ", ", tiling.str(), ": ", us,
                  " us, measured ", row.us);
  }
}

// A sum has the same bits on every device with enough resources for the warps that share it.
TEST_CASE("separable_plan/other_devices") {
  DeviceProfile small = reference_gpu();
  small.units = 40;
  small.fp32_flops_per_us /= 3;
  small.bytes_per_us /= 5;
  DeviceProfile tight = small;
  tight.shared_bytes_per_block = tight.shared_bytes_per_unit = 48 << 10;
  for (const SeparableProblem& p : some_problems) {
    const SeparableTiling tiling = plan_separable(p, reference_gpu()).value();
    SeparableTiling other = plan_separable(p, small).value();
    other.blocks = tiling.blocks;
    CHECK((other == tiling));
    if (const auto fits = plan_separable(p, tight))
      CHECK(SeparableSizes(p).shared_bytes(*fits) <= tight.shared_bytes_per_block);
  }
}

TEST_CASE("separable_plan/configurations_that_cannot_be") {
  const SeparableProblem p = problem(1, 96, 56, 24, 2);
  for (const char* const config :
       {"", "columns=1", "columns=2 tiles=4 pixels=1 channels=1 blocks=1",
        "columns=1 tiles=5 pixels=1 channels=1 blocks=1", "columns=1 tiles=4 pixels=8 channels=8 blocks=1",
        "columns=1 tiles=4 pixels=1 channels=4 blocks=1", "columns=1 tiles=4 pixels=1 channels=1 blocks=1 more=1"})
    CHECK_ERROR((void)read_separable_tiling(p, config), invalid_argument, "configuration '");
}

TEST_CASE("separable_plan/other_filters_strides_and_float32_are_refused") {
  for (const SeparableProblem& p : some_problems) CHECK(refusal(p).empty());
  CHECK(refusal(problem(1, 96, 56, 24, 1, 5)) == "its depthwise filters are not 3x3");
  CHECK(refusal(problem(1, 96, 56, 24, 3)) == "its stride is not 1 or 2");
  CHECK(refusal(problem(1, 96, 56, 24, 1, 3, DType::f32)).empty());
  CHECK(refusal(problem(1, 96, 56, 24, 1, 3, DType::f32), false) == "products of float32 are asked for as they are");
  CHECK(refusal(problem(1, 1 << 16, 3, 8)) == "its filters exceed shared memory");
  SeparableProblem dilated = problem(1, 96, 56, 24);
  dilated.depthwise.dilation_h = dilated.depthwise.dilation_w = 2;
  dilated.depthwise.pad_top = dilated.depthwise.pad_left = dilated.depthwise.pad_bottom = dilated.depthwise.pad_right =
      2;
  CHECK(refusal(dilated) == "it is dilated");
}

// Every weight is once where its lane reads it; everything beyond the channels and filters is zero.
TEST_CASE("separable_plan/what_is_prepared") {
  const SeparableProblem p = problem(1, 40, 9, 20);
  const Kernel& kernel = *find_kernel("SeparableConv", DeviceKind::cuda, "separable");
  Tensor taps(DType::f32, {40, 1, 3, 3}), bias(DType::f32, {40}), filter_bias(DType::f32, {20}),
      filter(DType::f32, {20, 40, 1, 1});
  double sum = 0;
  for (Tensor* tensor : {&taps, &filter})
    for (float& value : tensor->values<float>())
      sum += value = static_cast<float>(1 + (&value - tensor->values<float>().data()) % 64);
  for (Tensor* tensor : {&bias, &filter_bias})
    for (float& value : tensor->values<float>()) value = 0;
  const auto posed = pose(p, taps, bias, filter, filter_bias);
  const Candidate candidate = kernel.offer(*posed, {.device = reference_gpu()}).candidates.at(0);
  const Tensor blob = prepared_blob(kernel, *posed, candidate);
  double found = 0;
  const auto* const halves = static_cast<const Float16*>(blob.data());
  for (std::size_t i = 0; i < blob.bytes() / 2; ++i) found += static_cast<double>(widened(halves[i]));
  CHECK(found == sum);
}

}  // namespace lenslet::test
