// Winograd's plans on CUDA (tiles, chunks, products): plain arithmetic, needs no device.

#include <doctest/doctest.h>

#include "ops/conv/cuda/winograd_plan.h"
#include "tests/expect_error.h"
#include "tests/ops/conv_cases.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

constexpr std::size_t workspace_limit = 256 << 20;

ConvProblem square(std::int64_t n, std::int64_t c, std::int64_t size, std::int64_t k, std::int64_t r = 3) {
  ConvGeometry geometry;
  geometry.pads.fill(r / 2);
  return resolve_conv({n, c, size, size}, {k, c, r, r}, geometry);
}

/// F(m x m, r x r).
struct Form {
  int m, r;
};
constexpr Form forms[] = {{2, 3}, {4, 3}, {2, 5}, {4, 5}, {2, 7}};

std::size_t workspace_bytes(const WinogradPlan& plan) {
  return (plan.v_floats() + plan.product_floats()) * sizeof(float);
}

/// Invariants that the kernels rely on.
void check_plan(const ConvProblem& p, const Form& form) {
  const int m = form.m, r = form.r;
  CAPTURE(p.str());
  CAPTURE(m);
  const WinogradPlan plan = plan_winograd(p, m, reference_gpu());
  const auto covers = [](std::int64_t parts, std::int64_t size, std::int64_t whole) {
    return parts * size >= whole && (parts - 1) * size < whole;
  };
  CHECK(plan.r == r);
  CHECK(plan.alpha2 == (m + r - 1) * (m + r - 1));
  CHECK(covers(plan.down, m, p.p));
  CHECK(covers(plan.across, m, p.q));
  CHECK(plan.count == p.n * plan.down * plan.across);
  CHECK(covers(plan.c / gemm_step, gemm_step, p.c));
  CHECK(plan.c % gemm_step == 0);
  CHECK(covers(plan.k / 4, 4, p.k));
  CHECK(plan.k % 4 == 0);
  CHECK(plan.chunk >= 1);
  CHECK(plan.chunk <= plan.count);
  CHECK(workspace_bytes(plan) <= workspace_limit);
  // The kernels index V and M with 32 bits.
  CHECK(std::max(plan.v_floats(), plan.product_floats()) < std::size_t{1} << 31);
  // Wide threads need whole vectors of channels.
  CHECK((!plan.wide_input || p.c % winograd_width(m, r) == 0));
  CHECK((!plan.wide_output || p.k % winograd_width(m, r) == 0));
  const WinogradPlan read = read_winograd_plan(p, m, plan.str());
  CHECK(read.str() == plan.str());
  CHECK(workspace_bytes(read) == workspace_bytes(plan));
}

}  // namespace

TEST_CASE("conv/winograd_plan/covers_every_output") {
  int accepted = 0;
  for (const Form& form : forms) {
    int of_form = 0;
    for (const ConvCase& c : conv_cases()) {
      if (refuse_winograd(c.problem, form.m, form.r)) continue;
      ++of_form;
      check_plan(c.problem, form);
    }
    CHECK(of_form >= 5);
    accepted += of_form;
  }
  CHECK(accepted >= 60);
}

TEST_CASE("conv/winograd_plan/chunks_keep_the_workspace_under_the_cap") {
  for (const int m : {2, 4}) {
    const ConvProblem p = square(64, 64, 224, 64);
    check_plan(p, {m, 3});
    const WinogradPlan plan = plan_winograd(p, m, reference_gpu());
    const std::int64_t chunks = (plan.count + plan.chunk - 1) / plan.chunk;
    CHECK(chunks > 1);
    // About equal, and no more chunks than the cap requires.
    CHECK(plan.count - (chunks - 1) * plan.chunk > plan.chunk - chunks);
    const std::size_t all =
        workspace_bytes(plan) / static_cast<std::size_t>(plan.chunk) * static_cast<std::size_t>(plan.count);
    CHECK(chunks <= static_cast<std::int64_t>(all / workspace_limit) + 1);
  }
  // One chunk if it fits.
  CHECK(plan_winograd(square(1, 64, 224, 64), 4, reference_gpu()).chunk == 56 * 56);
}

TEST_CASE("conv/winograd_plan/chunks_of_large_filters_are_those_of_the_least_estimate") {
  const DeviceProfile& device = reference_gpu();
  for (const auto& [p, m] :
       {std::pair{parse_conv("64x128x96x96 -> 128, 5x5 s1 p0 g1"), 4},
        std::pair{parse_conv("64x128x96x96 -> 128, 5x5 s1 p0 g1"), 2}, std::pair{square(8, 64, 112, 64, 7), 2}}) {
    check_plan(p, {m, static_cast<int>(p.r)});
    const WinogradPlan plan = plan_winograd(p, m, device);
    const double us = estimate_winograd_us(p, plan, device);
    for (const int parts : {1, 2, 3, 8}) {
      WinogradPlan other = plan;
      other.chunk = std::max(1, plan.chunk / parts);
      other.tile = choose_batched_gemm_tile(other.gemm(other.chunk), device);
      CHECK(us <= estimate_winograd_us(p, other, device));
    }
  }
  // One chunk if more launches would cost more.
  CHECK(plan_winograd(square(1, 64, 28, 64, 5), 4, device).chunk == 49);
}

TEST_CASE("conv/winograd_plan/other_filters_strides_and_groups_are_refused") {
  ConvGeometry geometry;
  const auto reason = [&](const Shape& x, const Shape& filter) {
    return refuse_winograd(resolve_conv(x, filter, geometry), 4).value_or("");
  };
  CHECK(reason({1, 8, 9, 9}, {8, 8, 3, 3}).empty());
  CHECK(reason({1, 8, 9, 9}, {8, 8, 3, 1}) == "filter is not 3x3");
  geometry.stride = {1, 2};
  CHECK(reason({1, 8, 9, 9}, {8, 8, 3, 3}) == "stride is not 1");
  geometry = {};
  geometry.dilation = {2, 1};
  CHECK(reason({1, 8, 9, 9}, {8, 8, 3, 3}) == "dilation is not 1");
  geometry = {};
  geometry.groups = 2;
  CHECK(reason({1, 8, 9, 9}, {8, 4, 3, 3}) == "groups are not 1");
  geometry = {};
  // 32 tiles of 36 * (50000 + 20000) floats are 323 MB; of F(2), with 16, 143 MB.
  CHECK(reason({1, 50000, 9, 9}, {20000, 50000, 3, 3}) == "workspace would exceed 256 MiB");
  CHECK(!refuse_winograd(resolve_conv({1, 50000, 9, 9}, {20000, 50000, 3, 3}, geometry), 2));
  constexpr std::int64_t most = 1 << 30;
  for (const std::int64_t more : {0, 1}) {  // a line of x, one of y, lines
    const std::string wanted = more == 0 ? "" : "sizes exceed 32-bit indices";
    CHECK(reason({1, 16, 3, most / 16 + more}, {1, 16, 3, 3}) == wanted);
    CHECK(reason({1, 1, 3, most / 16 + 2 + more}, {16, 1, 3, 3}) == wanted);
    CHECK(reason({1, 1, most + more, 3}, {1, 1, 3, 3}) == wanted);
  }

  const auto of_form = [&](const Form& form, const Shape& x, const Shape& filter) {
    return refuse_winograd(resolve_conv(x, filter, geometry), form.m, form.r).value_or("");
  };
  CHECK(of_form({4, 5}, {1, 8, 9, 9}, {8, 8, 3, 3}) == "filter is not 5x5");
  CHECK(of_form({2, 5}, {1, 8, 9, 9}, {8, 8, 5, 3}) == "filter is not 5x5");
  CHECK(of_form({2, 7}, {1, 8, 9, 9}, {8, 8, 5, 5}) == "filter is not 7x7");
  CHECK(of_form({4, 3}, {1, 8, 9, 9}, {8, 8, 5, 5}) == "filter is not 3x3");
  CHECK(of_form({4, 5}, {1, 1900, 9, 9}, {8, 1900, 5, 5}).empty());
  CHECK(of_form({4, 5}, {1, 4096, 9, 9}, {8, 4096, 5, 5}).find("its error may be") == 0);
  CHECK(of_form({2, 5}, {1, 4096, 9, 9}, {8, 4096, 5, 5}).empty());
  geometry.dilation = {2, 2};
  CHECK(of_form({4, 5}, {1, 8, 19, 19}, {8, 8, 5, 5}) == "dilation is not 1");
}

TEST_CASE("conv/winograd_plan/wide_transforms_need_threads") {
  DeviceProfile device = reference_gpu();
  const ConvProblem p = square(1, 64, 56, 64);  // 196 tiles of F(4): 6272 threads of two channels
  device.units = 12;
  CHECK(plan_winograd(p, 4, device).str() == "chunk=196 tile=32x64 wide_input=yes wide_output=yes");
  device.units = 13;
  CHECK_FALSE(plan_winograd(p, 4, device).wide_input);
}

TEST_CASE("conv/winograd_plan/configurations_that_no_kernel_runs") {
  const ConvProblem p = square(1, 15, 56, 64);
  CHECK(read_winograd_plan(p, 4, "chunk=7 tile=64x32 wide_input=no wide_output=yes").chunk == 7);
  for (const char* config :
       {"chunk=0 tile=64x32 wide_input=no wide_output=no", "chunk=197 tile=64x32 wide_input=no wide_output=no",
        "chunk=7 tile=32x32 wide_input=no wide_output=no", "chunk=7 tile=64x32 wide_input=yes wide_output=no",
        "chunk=7 tile=64x32 wide_input=no", ""}) {
    CAPTURE(config);
    CHECK_ERROR((void)read_winograd_plan(p, 4, config), invalid_argument, "configuration '");
  }
}

TEST_CASE("conv/winograd_plan/tile_follows_the_product") {
  const DeviceProfile& device = reference_gpu();
  const auto tile = [&](int m, int n, int k, int batches) {
    return choose_batched_gemm_tile({nullptr, nullptr, nullptr, m, n, k, batches}, device);
  };
  // With work for all multiprocessors: the tile that reads shared memory least. 16 or 49 rows: no tile of 128.
  CHECK(tile(4096, 512, 512, 36) == GemmTile::t128x128);
  CHECK(tile(4096, 64, 64, 36) == GemmTile::t128x64);
  CHECK(shape_of(tile(16, 512, 512, 36)).m == 32);
  CHECK(shape_of(tile(49, 512, 512, 36)).m <= 64);
  // A product never takes less time than at the peak rate.
  for (std::size_t i = 0; i < gemm_tiles.size(); ++i) {
    const BatchedGemm gemm{nullptr, nullptr, nullptr, 100, 60, 48, 16};
    CHECK(batched_gemm_us(gemm, static_cast<GemmTile>(i), device) >
          2.0 * 100 * 60 * 48 * 16 / device.fp32_flops_per_us);
  }
}

TEST_CASE("conv/winograd_plan/estimates_follow_the_work") {
  const auto us = [](const ConvProblem& p, int m) {
    return estimate_winograd_us(p, plan_winograd(p, m, reference_gpu()), reference_gpu());
  };
  // F(4) multiplies 4 times less than the definition, F(2) 2.25 times: F(4) wins with many tiles. A 7x7 image has 4
  // tiles of it, which leave most rows of its 36 products' blocks empty.
  CHECK(us(square(8, 256, 56, 256), 4) < us(square(8, 256, 56, 256), 2));
  CHECK(us(square(1, 512, 7, 512), 2) < us(square(1, 512, 7, 512), 4));
  // F(4,5) multiplies 6.25 times less than the definition, F(2,5) 2.8 times.
  CHECK(us(square(8, 128, 56, 128, 5), 4) < us(square(8, 128, 56, 128, 5), 2));
  // Never below the bytes of input, filters and output.
  for (const std::int64_t size : {7, 56, 224}) {
    const ConvProblem p = square(1, 64, size, 64);
    CHECK(us(p, 4) > p.bytes() / reference_gpu().bytes_per_us);
  }
}

}  // namespace lenslet::test
