// kn2col: refusals, the number of images at once, and the estimate. conv_test.cpp checks its values.

#include <doctest/doctest.h>

#include "ops/conv/conv.h"
#include "tests/ops/conv_data.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

const Kernel& algorithm() { return *find_kernel("Conv", DeviceKind::cpu, "kn2col"); }

/// A 3x3 convolution with same-size pads, unless others are given.
ConvProblem problem(const Shape& x, std::int64_t k, std::int64_t dilation = 1, std::int64_t pad = -1) {
  if (pad < 0) pad = dilation;
  return resolve_conv(x, {k, x[1], 3, 3}, {.dilation = {dilation, dilation}, .pads = {pad, pad, pad, pad}});
}

Offer offer(const ConvProblem& p) {
  return algorithm().offer(*pose(p, Tensor(DType::f32, {p.k, p.c, p.r, p.s})), {.device = cpu_profile(1)});
}

/// Multiplications by pixels of the image, counted one by one, without those that im2col does in addition.
double flops_inside(const ConvProblem& p) {
  std::int64_t pixels = 0;
  for (std::int64_t y = 0; y < p.p; ++y)
    for (std::int64_t x = 0; x < p.q; ++x)
      for (std::int64_t r = 0; r < p.r; ++r)
        for (std::int64_t s = 0; s < p.s; ++s) {
          const std::int64_t h = y * p.stride_h + r * p.dilation_h - p.pad_top;
          const std::int64_t w = x * p.stride_w + s * p.dilation_w - p.pad_left;
          pixels += h >= 0 && h < p.h && w >= 0 && w < p.w ? 1 : 0;
        }
  return 2 * static_cast<double>(p.n * pixels) * static_cast<double>(p.c * p.k);
}

}  // namespace

TEST_CASE("conv/kn2col/needs_a_tap_that_every_output_reads") {
  CHECK(offer(problem({1, 4, 9, 9}, 8)).refusal.empty());
  CHECK(offer(problem({1, 4, 9, 9}, 8, 12)).refusal.empty());  // the middle one
  CHECK(offer(problem({1, 4, 9, 9}, 8, 1, 2)).refusal == "no tap lies in the image for every output");
  CHECK(offer(problem({1, 4, 1, 1}, 8, 2, 3)).refusal == "no tap lies in the image for every output");
}

TEST_CASE("conv/kn2col/sums_of_a_tap_fill_16_mib_at_most") {
  CHECK(offer(problem({1, 1, 65, 64}, 1024)).refusal.empty());  // 64x64 outputs read the tap above them
  CHECK(offer(problem({1, 1, 66, 64}, 1024)).refusal == "the partial sums of a tap exceed 16 MiB");
  CHECK(offer(problem({1, 1, 200, 200}, 1024, 1, 0)).refusal.empty());  // every output reads every tap
}

TEST_CASE("conv/kn2col/images_whose_sums_fit_the_caches_together_are_taken_at_once") {
  const auto images = [](std::int64_t n, std::int64_t size, std::int64_t k) {
    const Candidate candidate = offer(problem({n, 4, size, size}, k)).candidates.at(0);
    return static_cast<std::int64_t>(candidate.workspace_bytes / sizeof(float)) / ((size - 1) * size * k);
  };
  CHECK(images(3, 14, 40) == 3);
  CHECK(images(19, 14, 40) == 18);  // 7280 accumulators in 128 Ki
  CHECK(images(5, 64, 64) == 1);
  // The last image alone, with a full epilogue.
  ConvProblem p = problem({19, 3, 14, 14}, 40);
  p.bias = p.residual = true;
  p.activation.kind = Activation::Kind::relu;
  check_conv(algorithm(), p, random_seed(), 2);
}

TEST_CASE("conv/kn2col/a_residual_of_groups_is_read_by_the_first_tap_where_every_output_reads_all") {
  ConvProblem p = resolve_conv({2, 12, 7, 8}, {10, 6, 3, 2}, {.groups = 2});
  p.residual = true;
  check_conv(algorithm(), p, random_seed(), 2);
}

TEST_CASE("conv/kn2col/estimate_counts_what_lies_in_the_image") {
  const double rate = cpu_profile(1).fp32_flops_per_us;
  for (const std::int64_t dilation : {1, 6, 12}) {
    const ConvProblem p = problem({1, 512, 14, 14}, 512, dilation);
    CAPTURE(dilation);
    const double us = offer(p).candidates.at(0).estimated_us, least_us = flops_inside(p) / rate;
    CHECK(us > least_us);
    CHECK(us < 3 * least_us);
  }
}

}  // namespace lenslet::test
