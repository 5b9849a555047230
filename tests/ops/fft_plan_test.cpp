// Tiling of convolutions with large windows for Fourier transforms: plain arithmetic, needs no device.

#include <doctest/doctest.h>

#include <algorithm>

#include "ops/conv/cuda/fft_plan.h"
#include "tests/expect_error.h"
#include "tests/ops/conv_cases.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

constexpr std::size_t workspace_limit = 256 << 20;

ConvProblem square(std::int64_t n, std::int64_t c, std::int64_t size, std::int64_t k, std::int64_t r) {
  ConvGeometry geometry;
  geometry.pads.fill(r / 2);
  return resolve_conv({n, c, size, size}, {k, c, r, r}, geometry);
}

std::size_t workspace_bytes(const FftPlan& plan) { return (plan.v_floats() + plan.product_floats()) * sizeof(float); }

/// Invariants that the kernels rely on.
void check_plan(const ConvProblem& p, const FftPlan& plan) {
  CAPTURE(p.str());
  CAPTURE(plan.str());
  const auto covers = [](std::int64_t parts, std::int64_t size, std::int64_t whole) {
    return parts * size >= whole && (parts - 1) * size < whole;
  };
  CHECK(std::find(fft_sizes.begin(), fft_sizes.end(), plan.size) != fft_sizes.end());
  CHECK(plan.slots == plan.size * plan.size / 2);
  // Outputs of a tile read no further than the tile.
  CHECK(plan.rows_out >= plan.size / 2);
  CHECK(plan.columns_out >= plan.size / 2);
  CHECK(plan.rows_out + p.r - 1 == plan.size);
  CHECK(plan.columns_out + p.s - 1 == plan.size);
  CHECK(covers(plan.down, plan.rows_out, p.p));
  CHECK(covers(plan.across, plan.columns_out, p.q));
  CHECK(plan.count == p.n * plan.down * plan.across);
  CHECK(covers(plan.c / fft_channels, fft_channels, p.c));
  CHECK(plan.c % fft_channels == 0);
  CHECK(covers(plan.k / 4, 4, p.k));
  CHECK(plan.k % 4 == 0);
  CHECK(plan.chunk >= 1);
  CHECK(plan.chunk <= plan.count);
  CHECK(workspace_bytes(plan) <= workspace_limit);
  const FftPlan read = read_fft_plan(p, plan.str());
  CHECK(read.str() == plan.str());
  CHECK(workspace_bytes(read) == workspace_bytes(plan));
  CHECK(read.u_floats() == plan.u_floats());
}

}  // namespace

TEST_CASE("conv/fft_plan/covers_every_output") {
  int accepted = 0;
  for (const ConvCase& c : conv_cases()) {
    if (refuse_fft(c.problem)) continue;
    ++accepted;
    check_plan(c.problem, plan_fft(c.problem, reference_gpu()));
    for (const int size : fft_sizes)
      if (std::max(c.problem.r, c.problem.s) <= largest_fft_window(size))
        check_plan(c.problem, plan_fft(c.problem, size, reference_gpu()));
  }
  CHECK(accepted >= 10);
}

TEST_CASE("conv/fft_plan/chunks_keep_the_workspace_under_the_cap") {
  for (const std::int64_t r : {5, 7, 11}) {
    const ConvProblem p = square(64, 128, 96, 128, r);
    const FftPlan plan = plan_fft(p, reference_gpu());
    check_plan(p, plan);
    CHECK(plan.chunk < plan.count);
    // Chunks of about equal size.
    const int chunks = (plan.count + plan.chunk - 1) / plan.chunk;
    CHECK(plan.count - (chunks - 1) * plan.chunk > plan.chunk - chunks);
  }
  // For any number of images.
  check_plan(square(20000, 64, 96, 64, 5), plan_fft(square(20000, 64, 96, 64, 5), reference_gpu()));
}

TEST_CASE("conv/fft_plan/the_size_of_tiles_is_the_problems") {
  // 28 outputs take one tile of 32, 32 one of 36, 56 with 7x7 two of 36 in both dimensions; 14 one of 20.
  CHECK(plan_fft(square(64, 32, 28, 96, 5), reference_gpu()).size == 32);
  CHECK(plan_fft(square(64, 32, 32, 96, 5), reference_gpu()).size == 36);
  CHECK(plan_fft(square(64, 64, 56, 64, 7), reference_gpu()).size == 36);
  CHECK(plan_fft(square(64, 32, 12, 96, 5), reference_gpu()).size == 16);
  CHECK(plan_fft(square(64, 32, 14, 96, 5), reference_gpu()).size == 20);
  // Filters of tiles of 32 would be 1.5 GB.
  CHECK(plan_fft(square(64, 512, 28, 512, 5), reference_gpu()).size <= 16);
  // Bits depend on the tile size, so it is the same on any device.
  DeviceProfile small = reference_gpu();
  small.units = 7;
  small.l2_bytes = 1 << 20;
  small.bytes_per_us = 1e5;
  for (const std::int64_t size : {12, 28, 56, 96})
    CHECK(plan_fft(square(8, 64, size, 64, 5), small).size ==
          plan_fft(square(8, 64, size, 64, 5), reference_gpu()).size);
}

TEST_CASE("conv/fft_plan/small_filters_strides_and_large_workspaces_are_refused") {
  ConvGeometry geometry;
  const auto reason = [&](const Shape& x, const Shape& filter) {
    return refuse_fft(resolve_conv(x, filter, geometry)).value_or("");
  };
  CHECK(reason({1, 8, 9, 9}, {8, 8, 5, 5}).empty());
  CHECK(reason({1, 8, 29, 29}, {8, 8, 21, 21}).empty());
  CHECK(reason({1, 8, 29, 29}, {8, 8, 22, 3}) == "filter is larger than 21x21");
  CHECK(reason({1, 8, 9, 9}, {8, 8, 3, 3}) == "filter has fewer than 16 taps");
  CHECK(reason({1, 8, 9, 9}, {8, 8, 1, 7}) == "filter has fewer than 16 taps");
  CHECK(reason({1, 1024, 19, 19}, {1024, 1024, 11, 11}) == "filters would exceed 512 MiB");
  CHECK(reason({1, 8192, 19, 19}, {1, 8192, 11, 11}) == "workspace would exceed 256 MiB");
  constexpr std::int64_t most = 1 << 30;
  for (const std::int64_t more : {0, 1}) {  // a line of x, one of y, lines
    const auto large = [&](const Shape& x, const Shape& filter) {
      return reason(x, filter) == "sizes exceed 32-bit indices";
    };
    CHECK(large({1, 8, 5, most / 8 + more}, {1, 8, 5, 5}) == (more == 1));
    CHECK(large({1, 1, 5, most / 8 + 4 + more}, {8, 1, 5, 5}) == (more == 1));
    CHECK(large({1, 1, most + more, 5}, {1, 1, 5, 5}) == (more == 1));
  }
  geometry.stride = {1, 2};
  CHECK(reason({1, 8, 9, 9}, {8, 8, 5, 5}) == "stride is not 1");
  geometry = {};
  geometry.dilation = {2, 1};
  CHECK(reason({1, 8, 19, 19}, {8, 8, 5, 5}) == "dilation is not 1");
  geometry = {};
  geometry.groups = 2;
  CHECK(reason({1, 8, 9, 9}, {8, 4, 5, 5}) == "groups are not 1");
}

TEST_CASE("conv/fft_plan/configurations_that_no_kernel_runs") {
  const ConvProblem p = square(8, 15, 56, 64, 5);  // 32 tiles of 32
  CHECK(read_fft_plan(p, "size=32 chunk=7 tile=64x32").chunk == 7);
  for (const char* config :
       {"size=32 chunk=0 tile=64x32", "size=32 chunk=33 tile=64x32", "size=28 chunk=7 tile=64x32",
        "size=32 chunk=7 tile=16x16", "size=32 chunk=7", "size=32 chunk=7 tile=64x32 more=1", ""}) {
    CAPTURE(config);
    CHECK_ERROR((void)read_fft_plan(p, config), invalid_argument, "configuration '");
  }
  CHECK_ERROR((void)read_fft_plan(square(8, 15, 56, 64, 11), "size=16 chunk=7 tile=64x32"), invalid_argument,
              "filter is larger than 9x9");
}

TEST_CASE("conv/fft_plan/estimates_follow_the_work") {
  const auto us = [](const ConvProblem& p) {
    return estimate_fft_us(p, plan_fft(p, reference_gpu()), reference_gpu());
  };
  // Estimates are never below the bytes of input, filters and output, and grow with every size.
  for (const std::int64_t size : {7, 28, 56, 112}) {
    const ConvProblem p = square(8, 64, size, 64, 5);
    CHECK(us(p) > p.bytes() / reference_gpu().bytes_per_us);
    CHECK(us(square(16, 64, size, 64, 5)) > us(p));
    CHECK(us(square(8, 128, size, 64, 5)) > us(p));
    CHECK(us(square(8, 64, size, 128, 5)) > us(p));
  }
}

}  // namespace lenslet::test
