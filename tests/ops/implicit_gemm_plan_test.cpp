// implicit_gemm's plans: plain arithmetic, needs no device.

#include <doctest/doctest.h>

#include <algorithm>

#include "ops/conv/conv.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "tests/expect_error.h"
#include "tests/ops/conv_cases.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

constexpr GemmAccess accesses[] = {GemmAccess::nhwc_vectors, GemmAccess::nhwc_scalars, GemmAccess::nchw};
constexpr std::int64_t workspace_limit = 64 << 20;

ConvProblem square(std::int64_t n, std::int64_t c, std::int64_t size, std::int64_t k, std::int64_t filter) {
  ConvGeometry geometry;
  geometry.pads.fill(filter / 2);
  return resolve_conv({n, c, size, size}, {k, c, filter, filter}, geometry);
}

std::int64_t blocks(const ConvProblem& p, const ImplicitGemmPlan& plan) {
  return plan.tiles_m * plan.tiles_n * plan.split_k * p.groups;
}

void check_tiling(const ConvProblem& p, GemmTile tile, std::int64_t split_k) {
  CAPTURE(p.str());
  CAPTURE(split_k);
  const GemmTileShape& shape = shape_of(tile);
  const ImplicitGemmPlan plan = tile_gemm(p, tile, split_k);
  CHECK(plan.tile == tile);
  const auto covers = [](std::int64_t parts, std::int64_t size, std::int64_t whole) {
    return parts >= 1 && parts * size >= whole && (parts - 1) * size < whole;
  };
  CHECK(covers(plan.tiles_m, shape.m, p.n * p.p * p.q));
  CHECK(covers(plan.tiles_n, shape.n, p.group_k()));
  CHECK(covers(plan.steps, gemm_step, p.r * p.s * p.group_c()));
  CHECK(covers(plan.split_k, plan.steps_per_split, plan.steps));
  CHECK(plan.split_k <= split_k);
  CHECK(plan.cluster == (plan.split_k <= max_cluster ? plan.split_k : 1));
  const std::int64_t acc = plan.split_k > 1 ? plan.split_k * p.n * p.k * p.p * p.q : 0;
  CHECK(plan.workspace_bytes == static_cast<std::size_t>(acc) * sizeof(float));
}

}  // namespace

TEST_CASE("conv/implicit_gemm_plan/tilings_cover_everything_once") {
  for (const ConvCase& c : conv_cases())
    for (std::size_t tile = 0; tile < gemm_tiles.size(); ++tile)
      for (const std::int64_t split_k : {1, 2, 3, 7, 64}) check_tiling(c.problem, static_cast<GemmTile>(tile), split_k);
}

TEST_CASE("conv/implicit_gemm_plan/split_k_divides_the_steps") {
  // 9 k-blocks split by at most 4: 3 times 3, without an empty fourth.
  const ImplicitGemmPlan plan = tile_gemm(square(1, 16, 7, 64, 3), GemmTile::t64x64, 4);
  CHECK(plan.steps == 9);
  CHECK(plan.steps_per_split == 3);
  CHECK(plan.split_k == 3);
  CHECK(plan.workspace_bytes == 3 * 7 * 7 * 64 * sizeof(float));
}

TEST_CASE("conv/implicit_gemm_plan/takes_a_tile_that_is_compiled") {
  for (const ConvCase& c : conv_cases())
    for (const GemmAccess access : accesses) {
      CAPTURE(c.name);
      const ImplicitGemmPlan plan = plan_implicit_gemm(c.problem, access);
      const auto tiles = gemm_tiles_for(access);
      CHECK(std::find(tiles.begin(), tiles.end(), plan.tile) != tiles.end());
      check_tiling(c.problem, plan.tile, plan.split_k);
    }
}

TEST_CASE("conv/implicit_gemm_plan/workspace_is_limited") {
  for (const std::int64_t n : {1, 8, 64})
    for (const std::int64_t k : {64, 512, 4096}) {
      const ConvProblem p = square(n, 2048, 28, k, 3);
      CHECK(plan_implicit_gemm(p, GemmAccess::nhwc_vectors).workspace_bytes <= workspace_limit);
    }
}

TEST_CASE("conv/implicit_gemm_plan/split_k_only_where_tiles_are_few") {
  // The last stage of ResNet-50 at batch 1: 49 pixels are one tile high.
  for (const ConvProblem& p : {square(1, 512, 7, 512, 3), square(1, 2048, 7, 512, 1)}) {
    const ImplicitGemmPlan plan = plan_implicit_gemm(p, GemmAccess::nhwc_vectors);
    CAPTURE(p.str());
    CHECK(plan.split_k > 1);
    CHECK(blocks(p, plan) >= 66);  // at least every other of 132 multiprocessors
  }
  const ConvProblem large = square(64, 64, 56, 64, 3);
  CHECK(plan_implicit_gemm(large, GemmAccess::nhwc_vectors).split_k == 1);
}

TEST_CASE("conv/implicit_gemm_plan/clusters_where_they_were_measured_to_pay") {
  const auto cluster = [](const ConvProblem& p, GemmAccess access = GemmAccess::nhwc_vectors) {
    const ImplicitGemmPlan plan = plan_implicit_gemm(p, access);
    CAPTURE(p.str());
    CHECK((plan.cluster == 1 || plan.cluster == plan.split_k));
    return plan.cluster;
  };
  for (const ConvProblem& p : {square(1, 1024, 14, 256, 1), square(1, 384, 14, 64, 1), square(1, 256, 14, 1024, 1)}) {
    CHECK(cluster(p) > 1);
    CHECK(cluster(p, GemmAccess::nchw) == 1);
  }
  // More than eight splits are needed; or the clusters' uneven spread costs more than the second kernel.
  for (const ConvProblem& p : {square(1, 512, 7, 512, 3), square(1, 256, 56, 256, 3), square(8, 2048, 7, 512, 1)})
    CHECK(cluster(p) == 1);
}

TEST_CASE("conv/implicit_gemm_plan/access") {
  CHECK(gemm_access(square(1, 64, 7, 10, 3), formats::nhwc) == GemmAccess::nhwc_vectors);
  CHECK(gemm_access(square(1, 3, 7, 64, 3), formats::nhwc) == GemmAccess::nhwc_scalars);
  CHECK(gemm_access(square(1, 64, 7, 64, 3), formats::nchw) == GemmAccess::nchw);
  // The alignment of a group's first channel decides.
  const ConvProblem grouped = parse_conv("1x12x9x9 -> 8, 3x3 s1 p0 g2");
  CHECK(gemm_access(grouped, formats::nhwc) == GemmAccess::nhwc_scalars);
}

TEST_CASE("conv/implicit_gemm_plan/configurations_read_back") {
  const auto same = [](const ConvProblem& p, GemmAccess access, const ImplicitGemmPlan& plan) {
    CAPTURE(p.str());
    CAPTURE(plan.str());
    const ImplicitGemmPlan read = read_implicit_gemm_plan(p, access, plan.str());
    CHECK(read.str() == plan.str());
    CHECK(read.tiles_m == plan.tiles_m);
    CHECK(read.tiles_n == plan.tiles_n);
    CHECK(read.steps_per_split == plan.steps_per_split);
    CHECK(read.workspace_bytes == plan.workspace_bytes);
    CHECK(read.resident == plan.resident);
  };
  for (const ConvCase& c : conv_cases())
    for (const GemmAccess access : accesses) {
      same(c.problem, access, plan_implicit_gemm(c.problem, access));
      for (const std::int64_t split_k : {1, 3, 64}) {
        ImplicitGemmPlan plan = tile_gemm(c.problem, GemmTile::t128x64, split_k);
        plan.resident = split_k % 3;
        same(c.problem, access, plan);
      }
    }
  const ConvProblem p = square(1, 16, 7, 64, 3);  // 9 k-blocks
  CHECK(tile_gemm(p, GemmTile::t64x64, 3).str() == "tile=64x64 split_k=3 cluster=3");
  CHECK(read_implicit_gemm_plan(p, GemmAccess::nchw, "tile=64x64 split_k=3 cluster=1").cluster == 1);
  const char* const few = "tile=64x64 split_k=3 cluster=3 resident=2";
  CHECK(read_implicit_gemm_plan(p, GemmAccess::nchw, few).resident == 2);
  CHECK(read_implicit_gemm_plan(p, GemmAccess::nchw, few).str() == few);
  // Missing kernels; impossible splits, or too many for a cluster; texts that are no configuration.
  for (const char* config :
       {"tile=64x32 split_k=3 cluster=3", "tile=64x65 split_k=3 cluster=3", "tile=64x64 split_k=4 cluster=1",
        "tile=64x64 split_k=0 cluster=1", "tile=64x64 split_k=10 cluster=1", "tile=64x64 split_k=3 cluster=2",
        "tile=64x64 split_k=9 cluster=9", "tile=64x64 split_k=3 cluster=3 resident=0",
        "tile=64x64 split_k=3 cluster=3 resident=6", "tile=64x64 split_k=3 cluster=3 resident=2 ",
        "tile=64x64 split_k=3", ""}) {
    CAPTURE(config);
    CHECK_ERROR((void)read_implicit_gemm_plan(p, GemmAccess::nchw, config), invalid_argument, "configuration '");
  }
}

TEST_CASE("conv/implicit_gemm_plan/blocks_are_spread_evenly_where_more_of_them_fit") {
  DeviceProfile device = reference_gpu();
  const auto resident = [&](const ConvProblem& p, GemmTile tile, std::int64_t split_k) {
    return even_resident(p, tile_gemm(p, tile, split_k), device);
  };
  // 98 tiles of 32x64 in each of `split_k`, of which eight fit.
  const ConvProblem p = square(1, 512, 56, 64, 1);
  CHECK(resident(p, GemmTile::t32x64, 1) == 1);
  CHECK(resident(p, GemmTile::t32x64, 2) == 2);  // 196 blocks on 132 multiprocessors
  CHECK(resident(p, GemmTile::t32x64, 3) == 3);  // 294 in clusters of 3, which fill 120
  CHECK(resident(p, GemmTile::t32x64, 8) == 7);  // 784 in clusters of 8, which fill 112
  device.clusters = false;
  CHECK(resident(p, GemmTile::t32x64, 8) == 6);
  device.clusters = true;
  CHECK(resident(p, GemmTile::t32x64, 11) == 0);   // 1078: eight, as many as fit
  CHECK(resident(p, GemmTile::t32x64, 32) == 0);   // several rounds
  CHECK(resident(p, GemmTile::t128x128, 1) == 1);  // 25 tiles
  CHECK(resident(p, GemmTile::t128x128, 8) == 0);  // 200, of which two fit
  // Two groups double the blocks; other devices have other multiprocessors.
  CHECK(resident(parse_conv("1x512x56x56 -> 128, 1x1 s1 p0 g2"), GemmTile::t32x64, 1) == 2);
  device.units = 66;
  CHECK(resident(p, GemmTile::t32x64, 1) == 2);
  device.units = 10;
  CHECK(resident(p, GemmTile::t32x64, 1) == 0);

  // The rule's candidate contains the device's plan, and its text reads back. The tiling is the same everywhere.
  for (const ConvCase& c : conv_cases())
    for (const char* name : {"implicit_gemm", "implicit_gemm_nchw"})
      for (const int units : {132, 30}) {
        device.units = units;
        const Kernel* const kernel = find_kernel("Conv", DeviceKind::cuda, name);
        REQUIRE(kernel != nullptr);
        const auto problem =
            pose(c.problem, Tensor(DType::f32, {c.problem.k, c.problem.group_c(), c.problem.r, c.problem.s}));
        const Offer offer = kernel->offer(*problem, {.device = device});
        if (offer.candidates.empty()) continue;
        CAPTURE(c.name);
        const GemmAccess access = gemm_access(c.problem, offer.candidates[0].outputs[0]);
        ImplicitGemmPlan plan = plan_implicit_gemm(c.problem, access);
        CHECK(plan.resident == 0);
        // Only long products are limited (implicit_gemm.cu).
        if (offer.candidates[0].estimated_us >= 9) plan.resident = even_resident(c.problem, plan, device);
        CHECK(offer.candidates[0].config == plan.str());
        CHECK(read_implicit_gemm_plan(c.problem, access, plan.str()).resident == plan.resident);
      }
}

TEST_CASE("conv/implicit_gemm_plan/shared_memory_holds_the_rest_out") {
  DeviceProfile device = reference_gpu();
  constexpr std::size_t reserved = 1024;               // reserved for every block
  for (const std::size_t unit : {228U, 164U, 100U}) {  // sm_90, sm_80, sm_86
    device.shared_bytes_per_unit = unit << 10;
    device.shared_bytes_per_block = (unit - 1) << 10;
    const auto fit = [&](std::size_t bytes) { return device.shared_bytes_per_unit / (bytes + reserved); };
    for (const std::size_t bytes : {0U, 12U << 10, 40U << 10}) {
      CHECK(shared_bytes_for(bytes, 0, device) == bytes);
      for (const std::size_t resident : {1U, 2U, 3U, 5U, 8U}) {
        const std::size_t asked = shared_bytes_for(bytes, static_cast<std::int64_t>(resident), device);
        CAPTURE(unit);
        CAPTURE(resident);
        CHECK(asked >= bytes);
        CHECK(asked <= device.shared_bytes_per_block);
        CHECK(fit(asked) == std::min(resident, fit(bytes)));
      }
    }
  }
}

TEST_CASE("conv/implicit_gemm_plan/estimate") {
  const DeviceProfile& device = reference_gpu();
  const auto us = [&](const ConvProblem& p) {
    return gemm_plan_us(p, GemmAccess::nhwc_vectors, plan_implicit_gemm(p, GemmAccess::nhwc_vectors), device);
  };
  // Never below the limits of the device's arithmetic and memory, and not far above them if there is work for all.
  for (const ConvProblem& p : {square(1, 512, 7, 512, 3), square(8, 64, 56, 64, 3), square(64, 256, 14, 256, 3)}) {
    CAPTURE(p.str());
    CHECK(us(p) >= p.flops() / device.fp32_flops_per_us);
    CHECK(us(p) >= p.bytes() / device.bytes_per_us);
  }
  const ConvProblem large = square(64, 256, 28, 256, 3);
  CHECK(us(large) <= 1.5 * large.flops() / device.fp32_flops_per_us);
  CHECK(us(square(8, 256, 28, 256, 3)) < us(large));
}

}  // namespace lenslet::test
