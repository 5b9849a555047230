// gemm_cute's plans; tests/cuda/gemm_cute_test.cpp tests its kernels.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/has_wgmma.h"
#include "lenslet/error.h"
#include "ops/core/config_text.h"
#include "ops/gemm/cute/gemm_cute.h"
#include "ops/gemm/cute/tile_order.h"
#include "tests/expect_error.h"

namespace lenslet {
namespace {

using cuda::CutePlan;
using cuda::CuteProblem;
using Core = CutePlan::Core;

constexpr auto bf16 = Numerics::Multiply::bf16;

DeviceProfile ampere() {
  DeviceProfile device = reference_gpu();
  device.capability = 80;
  device.clusters = false;
  device.shared_bytes_per_block = 163 << 10;
  return device;
}

std::string text(const CutePlan& plan) {
  ConfigWriter config;
  plan.write(config);
  return config.str();
}

CutePlan read(std::string_view text, const CuteProblem& problem) {
  ConfigReader reader(text);
  const CutePlan plan = CutePlan::read(reader, problem);
  reader.finish();
  return plan;
}

TEST_CASE("gemm_cute/old_devices_and_huge_products_are_refused") {
  const CuteProblem p{.multiply = bf16, .y_type = DType::bf16, .m = 8, .n = 8, .k = 8};
  if (!cuda::cute_built()) {
    CHECK(cuda::cute_refusal(p, reference_gpu()).find("without the headers of CUTLASS") != std::string::npos);
    CHECK(cuda::cute_plans(p, reference_gpu()).empty());
    return;
  }
  CHECK(cuda::cute_refusal(p, reference_gpu()).empty());
  DeviceProfile turing = ampere();
  turing.capability = 75;
  CHECK(cuda::cute_refusal(p, turing).find("compute capability 8.0") != std::string::npos);
  CuteProblem q = p;
  q.k = 0;
  CHECK(!cuda::cute_refusal(q, reference_gpu()).empty());
  q = p;
  q.batch = std::int64_t{1} << 32;
  CHECK(!cuda::cute_refusal(q, reference_gpu()).empty());
}

TEST_CASE("gemm_cute/plans_are_read_back") {
  if (!cuda::cute_built()) return;
  for (const DeviceProfile& device : {reference_gpu(), ampere()})
    for (const std::int64_t k : {1, 64, 136, 1000, 4096})
      for (const bool b_transposed : {true, false}) {
        const CuteProblem p{.multiply = bf16,
                            .y_type = DType::f32,
                            .m = 300,
                            .n = 1000,
                            .k = k,
                            .b_transposed = b_transposed,
                            .aligned = k % 8 == 0};
        const std::vector<CutePlan> plans = cuda::cute_plans(p, device);
        CHECK(!plans.empty());
        for (const CutePlan& plan : plans) {
          CHECK(read(text(plan), p) == plan);
          CHECK(cuda::cute_plan_us(p, plan, device) > 0);
          CHECK((cuda::cute_workspace_bytes(p, plan) > 0) == (plan.split_k > 1 && !plan.joined()));
          CHECK((plan.core == Core::mma || (device.capability == 90 && p.aligned)));
        }
      }
}

// For all configurations of each product: their number, the product of their estimates (as a logarithm), their
// workspace, and a checksum of their texts. A change needs new measurements, or was unintended.
TEST_CASE("gemm_cute/tilings_and_their_estimates_are_those_that_were_fitted") {
  if (!cuda::cute_built()) return;
  const auto tf32 = Numerics::Multiply::tf32, fp32 = Numerics::Multiply::fp32;
  const CuteProblem problems[] = {
      {.multiply = bf16, .y_type = DType::bf16, .m = 256, .n = 256, .k = 256},
      {.multiply = bf16, .y_type = DType::bf16, .m = 64, .n = 1000, .k = 25088},
      {.multiply = bf16, .m = 3000, .n = 4096, .k = 1024},
      {.multiply = tf32, .m = 1024, .n = 1024, .k = 512, .batch = 3},
      {.multiply = tf32, .m = 100, .n = 70, .k = 63, .b_transposed = false, .aligned = false},
      {.multiply = fp32, .m = 300, .n = 500, .k = 2048},
      {.multiply = bf16, .m = 64, .n = 64, .k = 100000}};
  const auto found = [&](Core core) {
    int count = 0;
    double log_us = 0;
    std::size_t workspace = 0;
    std::uint32_t words = 0;
    for (const CuteProblem& p : problems)
      for (const CutePlan& plan : cuda::cute_plans(p, reference_gpu())) {
        if (plan.core != core) continue;
        ++count;
        log_us += std::log(cuda::cute_plan_us(p, plan, reference_gpu()));
        workspace += cuda::cute_workspace_bytes(p, plan);
        for (const char c : text(plan)) words = words * 31 + static_cast<unsigned char>(c);
      }
    return fmt::format("{}: {:.7g}, {} bytes, {:x}", count, log_us, workspace, words);
  };
  CHECK(found(Core::mma) == "96: 430.8764, 5001103040 bytes, bf28ca59");
  const std::string wgmma = found(Core::wgmma);
  if (!wgmma.starts_with("0:"))  // a build for sm_90a
    CHECK(wgmma == "349: 1422.607, 17066864640 bytes, e75656f7");
}

TEST_CASE("gemm_cute/a_quick_build_offers_the_kernels_that_it_has") {
  if (!cuda::cute_built()) return;
  const auto offered = [](const CuteProblem& p, DeviceProfile device) {
    device.quick_build = true;
    std::string tiles;
    for (const CutePlan& plan : cuda::cute_plans(p, device))
      if (plan.split_k == 1 && plan.cluster == 1) {
        CHECK(cuda::cute_in_quick_build(p, plan));
        tiles += fmt::format(" {}x{}", plan.tile_m, plan.tile_n);
      }
    const std::string refusal = cuda::cute_refusal(p, device);
    CHECK((refusal.empty() ? tiles != "" : refusal.find("LENSLET_CUDA_QUICK") != refusal.npos && tiles.empty()));
    return tiles;
  };
  struct Offered {
    Numerics::Multiply multiply;
    bool b_transposed, aligned;
    std::string wgmma, mma;
  };
  using Multiply = Numerics::Multiply;
  for (const Offered& row : {Offered{Multiply::fp32, true, true, "", ""},
                             {Multiply::fp32, true, false, "", " 64x64"},
                             {Multiply::fp32, false, true, "", " 64x64"},
                             {Multiply::tf32, true, true, " 256x128", " 64x64"},
                             {Multiply::tf32, false, true, "", ""},
                             {Multiply::fp16, true, true, " 128x128", " 128x128"},
                             {Multiply::fp16, true, false, "", ""},
                             {Multiply::fp16, false, true, " 128x256", ""},
                             {bf16, true, true, " 64x64", ""},
                             {bf16, false, true, "", " 64x64"}}) {
    const CuteProblem p{.multiply = row.multiply,
                        .m = 512,
                        .n = 512,
                        .k = 512,
                        .b_transposed = row.b_transposed,
                        .aligned = row.aligned};
    CHECK(offered(p, ampere()) == row.mma);
    if (cuda::has_wgmma(reference_gpu())) CHECK(offered(p, reference_gpu()) == row.wgmma + row.mma);
  }
}

TEST_CASE("gemm_cute/configurations_of_no_tiling_are_refused") {
  const CuteProblem p{.multiply = bf16, .m = 64, .n = 64, .k = 7 * 64};
  CHECK(read("core=mma tile=64x64 split_k=4", p).split_k == 4);
  const std::string no_tiling = "gemm_cute has no configuration for this product";
  for (const auto& wrong : {std::pair<const char*, std::string>{"core=mma tile=64x64 split_k=5", no_tiling},
                            {"core=mma tile=64x64 split_k=8", "split_k is '8', a number from 1 to 7 expected"},
                            {"core=mma tile=64x64 split_k=0", "split_k is '0', a number from 1 to 7 expected"},
                            {"core=wgmma tile=64x32 cluster=1 split_k=1", no_tiling},
                            {"core=wgmma tile=128x128 split_k=1", "'cluster=' expected before 'split_k=1'"},
                            {"core=mma tile=64x64 cluster=1 split_k=1", "'split_k=' expected before 'cluster=1"},
                            {"core=wgmma tile=128x128 cluster=4 split_k=1", no_tiling},
                            {"core=wgmma tile=128x128 cluster=3 split_k=3", no_tiling},
                            {"core=wgmma tile=128x128 cluster=8 split_k=8", "split_k is '8'"},
                            {"core=wgmma tile=128x128 cluster=2 split_k=4", no_tiling},
                            {"core=wgmma tile=128x256 cluster=2 split_k=2", no_tiling},
                            {"core=mma tile=64x64", "'split_k=' expected before ''"},
                            {"", "'core=' expected before ''"}})
    CHECK_ERROR(read(wrong.first, p), invalid_argument, wrong.second);
  CHECK(read("core=wgmma tile=128x256 cluster=2 split_k=1", p).cluster == 2);
  CHECK(read("core=wgmma tile=128x64 cluster=4 split_k=4", p).joined());
  CHECK(!read("core=wgmma tile=128x64 cluster=1 split_k=4", p).joined());
  const CuteProblem odd{.multiply = bf16, .m = 64, .n = 64, .k = 65, .aligned = false};
  CHECK_ERROR(read("core=wgmma tile=128x128 cluster=1 split_k=1", odd), invalid_argument, no_tiling);
}

// The tile scheduler: every tile of each product and split once, with all k-blocks, in order.
TEST_CASE("gemm_cute/every_tile_once") {
  if (!cuda::cute_built()) return;
  for (const CuteProblem& p : {CuteProblem{.multiply = bf16, .m = 1, .n = 8, .k = 8},
                               CuteProblem{.multiply = bf16, .m = 1300, .n = 2570, .k = 24},
                               CuteProblem{.multiply = bf16, .m = 5000, .n = 1032, .k = 1000, .batch = 3},
                               CuteProblem{.multiply = bf16, .m = 70, .n = 9000, .k = 640, .b_transposed = false},
                               CuteProblem{.multiply = Numerics::Multiply::tf32, .m = 9000, .n = 70, .k = 640}})
    for (const CutePlan& plan : cuda::cute_plans(p, reference_gpu())) {
      const cuda::CuteTiles tiles = cuda::cute_tiles(p, plan);
      const bool shares = plan.core == Core::wgmma && plan.cluster > 1 && !plan.joined();
      const bool shares_a = shares && cuda::cute_shares_a(plan.tile_m, plan.tile_n);
      const int rows = shares && !shares_a ? plan.tile_m * plan.cluster : plan.tile_m;
      const int columns = shares_a ? plan.tile_n * plan.cluster : plan.tile_n;
      CHECK(tiles.tiles_m * std::int64_t{rows} >= p.m);
      CHECK((tiles.tiles_m - 1) * std::int64_t{rows} < p.m);
      CHECK(tiles.tiles_n * std::int64_t{columns} >= p.n);
      CHECK((tiles.tiles_n - 1) * std::int64_t{columns} < p.n);
      std::vector<int> seen(tiles.count);
      bool whole = true;
      for (unsigned index = 0; index < tiles.count; ++index) {
        const cuda::CuteTiles::Tile tile = tiles[index];
        const std::int64_t at =
            ((std::int64_t{tile.product} * tiles.split_k + tile.split) * tiles.tiles_m + tile.m) * tiles.tiles_n +
            tile.n;
        whole = whole && tile.m < tiles.tiles_m && tile.n < tiles.tiles_n && at < std::int64_t{tiles.count};
        if (whole) ++seen[static_cast<std::size_t>(at)];
        int next = tile.split * tiles.steps_per_split;
        whole = whole && tile.first_step == next && tile.step_count > 0;
        if (tile.split + 1 == tiles.split_k) whole = whole && tile.first_step + tile.step_count == tiles.steps;
        if (!plan.joined()) continue;
        next = 0;
        for (int block = 0; block < plan.cluster; ++block) {
          const cuda::CuteTiles::Tile part = tiles.part(index, block, plan.cluster);
          whole = whole && part.m == tile.m && part.n == tile.n && part.first_step == next && part.step_count > 0;
          next += part.step_count;
        }
        whole = whole && next == tiles.steps;
      }
      CHECK_MESSAGE(whole, text(plan));
      CHECK_MESSAGE(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }), text(plan));
    }
}

TEST_CASE("gemm_cute/shared_memory") {
  for (const int tile_m : {64, 128, 256})
    for (const int tile_n : {64, 128, 256}) {
      if (tile_m * tile_n > 128 * 256) continue;
      for (const bool joins : {false, true}) {
        if (joins && !cuda::cute_joins(tile_m, tile_n)) continue;
        const cuda::CuteShared shared = cuda::cute_shared(tile_m, tile_n, joins);
        CHECK(shared.stages >= 4);
        CHECK(shared.stage % 1024 == 0);
        CHECK((joins || shared.buffers >= 2));
        // In whole KiB, as the kernel allocates.
        CHECK((shared.total + 1023) / 1024 * 1024 <= static_cast<int>(reference_gpu().shared_bytes_per_block));
        // Each block reserves one more KiB of the 228.
        CHECK(shared.blocks * ((shared.total + 1023) / 1024 + 1) <= 228);
        if (joins) CHECK(tile_m * (tile_n + cuda::cute_join_gap) * 4 <= shared.stages * shared.stage);
      }
    }
}

TEST_CASE("gemm_cute/choices") {
  if (!cuda::cute_built()) return;
  const auto plan = [](std::int64_t m, std::int64_t n, std::int64_t k, const DeviceProfile& device) {
    return cuda::plan_cute({.multiply = bf16, .y_type = DType::bf16, .m = m, .n = n, .k = k, .aligned = k % 8 == 0},
                           device);
  };
  CHECK(text(plan(8192, 8192, 8192, ampere())) == "core=mma tile=128x128 split_k=1");
  CHECK(text(plan(500, 500, 63, reference_gpu())) == "core=mma tile=64x64 split_k=1");
  // Few tiles and a large k: split-K, so that enough multiprocessors read.
  CHECK(plan(64, 1000, 25088, reference_gpu()).split_k > 1);
  CHECK(plan(64, 1000, 25088, ampere()).split_k > 1);
  const std::vector<CutePlan> all =
      cuda::cute_plans({.multiply = bf16, .m = 8192, .n = 8192, .k = 8192}, reference_gpu());
  const bool wgmma = std::any_of(all.begin(), all.end(), [](const CutePlan& p) { return p.core == Core::wgmma; });
  if (!wgmma) return;  // in a build for sm_90a
  // The fastest, or nearly: lenslet-bench-gemm-cute --all, H200.
  CHECK(text(plan(256, 256, 256, reference_gpu())) == "core=wgmma tile=64x64 cluster=1 split_k=1");
  CHECK(text(plan(512, 512, 512, reference_gpu())) == "core=wgmma tile=64x64 cluster=1 split_k=1");
  CHECK(text(plan(1024, 1024, 1024, reference_gpu())) == "core=wgmma tile=128x64 cluster=1 split_k=1");
  CHECK(text(plan(2048, 2048, 2048, reference_gpu())) == "core=wgmma tile=128x256 cluster=1 split_k=1");
  CHECK(text(plan(8192, 8192, 8192, reference_gpu())) == "core=wgmma tile=128x256 cluster=2 split_k=1");
  CHECK(text(plan(64, 4096, 4096, reference_gpu())) == "core=wgmma tile=64x64 cluster=2 split_k=2");
}

}  // namespace
}  // namespace lenslet
