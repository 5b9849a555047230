// Every tile configuration of CUDA's kernels for many problems: their number, the product of their estimates (as a
// logarithm), and a checksum of their texts. estimates_test.cpp covers the chosen one in a build with CUDA. A changed
// row needs new measurements, or was unintended.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/conv/cuda/fft_plan.h"
#include "ops/conv/cuda/grouped_mma_plan.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "ops/conv/cuda/mma_gemm_plan.h"
#include "ops/conv/cuda/separable_plan.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_halo_plan.h"
#include "ops/conv/cuda/wgmma_halo_split_k_plan.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/conv/cuda/winograd_plan.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"

namespace lenslet::cuda {
namespace {

struct Tilings {
  int count = 0;
  double log_us = 0;
  std::uint32_t words = 0;

  void add(std::string_view text, double us) {
    ++count;
    log_us += std::log(us);
    for (const char c : text) words = words * 31 + static_cast<unsigned char>(c);
  }
};
using AllTilings = std::map<std::string, Tilings>;

/// Layers of networks for photographs.
std::vector<ConvProblem> layers() {
  return test::convs(
      {"1x3x224x224 -> 64, 7x7 s2 p3 g1 +bias +relu",     "8x3x224x224 -> 32, 3x3 s2 p1 g1 +bias +relu",
       "1x64x56x56 -> 64, 3x3 s1 p1 g1 +bias +relu",      "64x64x56x56 -> 256, 1x1 s1 p0 g1 +bias +relu",
       "1x512x7x7 -> 512, 3x3 s1 p1 g1 +bias +relu",      "2x2048x7x7 -> 512, 1x1 s1 p0 g1 +bias +relu",
       "4x32x40x40 -> 48, 5x5 s1 p2 g1 +bias +relu",      "1x24x31x29 -> 40, 7x7 s1 p3 g1 +bias +relu",
       "1x256x28x28 -> 256, 3x3 s1 p2 g1 d2 +bias +relu", "8x128x28x28 -> 128, 3x3 s1 p1 g32 +bias +relu",
       "64x256x14x14 -> 256, 3x3 s1 p1 g64 +bias +relu",  "16x512x28x28 -> 512, 3x3 s2 p1 g32 +bias +relu",
       "1x48x35x35 -> 48, 3x3 s1 p1 g6 +bias +relu",      "2x12x64x64 -> 20, 15x15 s1 p7 g1 +bias +relu",
       "64x1280x8x8 -> 384, 1x1 s1 p0 g1 +bias +relu",    "1x33x17x19 -> 21, 3x3 s2 p1 g1 +bias +relu",
       "32x32x112x112 -> 16, 1x1 s1 p0 g1 +bias +relu",   "64x200x28x28 -> 256, 1x1 s1 p0 g1 +bias +relu",
       "32x72x56x56 -> 96, 3x3 s1 p1 g1 +bias +relu",     "64x512x14x14 -> 512, 3x3 s1 p1 g1 +bias +relu"});
}

/// More filters, channels, images, taps or outputs than in layers, and small problems of any kind.
std::vector<ConvProblem> odd_problems() {
  std::vector<ConvProblem> all =
      test::convs({"1x64x14x14 -> 8200, 3x3 s1 p1 g1 +bias +relu", "1x4100x9x9 -> 72, 3x3 s1 p1 g1 +bias +relu",
                   "700x64x7x7 -> 64, 3x3 s1 p1 g1 +bias +relu", "2x16x500x500 -> 24, 3x3 s1 p1 g1 +bias +relu",
                   "64x112x24x24 -> 512, 3x3 s1 p6 g1 d6 +relu", "16x512x33x33 -> 512, 3x3 s1 p4 g1 d4 +relu",
                   "3x96x40x300 -> 96, 1x9 s1 p0x4 g1 +bias +relu", "3x96x300x40 -> 96, 9x1 s1 p4x0 g1 +bias +relu",
                   "8x384x31x31 -> 264, 5x5 s2 p2 g1 +bias +relu", "32x2048x4x4 -> 2048, 1x1 s1 p0 g1 +bias +relu",
                   "4x1024x20x20 -> 1024, 3x3 s1 p1 g2 +bias +relu", "1x4096x1x1 -> 4096, 1x1 s1 p0 g1 +bias +relu"});
  std::mt19937 random(1);
  for (int i = 0; i < 600; ++i) all.push_back(test::random_problem(random));
  return all;
}

void add_fp32(AllTilings& all, const ConvProblem& p, const DeviceProfile& device) {
  for (const auto& [m, r] : {std::pair(2, 3), {4, 3}, {2, 5}, {4, 5}, {2, 7}}) {
    if (refuse_winograd(p, m, r) || p.r != r) continue;
    const WinogradPlan plan = plan_winograd(p, m, device);
    all["winograd"].add(plan.str(), estimate_winograd_us(p, plan, device));
  }
  if (!refuse_fft(p))
    for (const int size : fft_sizes) {
      if (size < std::max(p.r, p.s)) continue;
      const FftPlan plan = plan_fft(p, size, device);
      all["fft"].add(plan.str(), estimate_fft_us(p, plan, device));
    }
  for (const Format& format : {formats::nchw, formats::nhwc}) {
    const GemmAccess access = gemm_access(p, format);
    for (const GemmTile tile : gemm_tiles_for(access))
      for (const std::int64_t split_k : {1, 3, 8, 20}) {
        ImplicitGemmPlan plan = tile_gemm(p, tile, split_k);
        plan.resident = even_resident(p, plan, device);
        all["implicit_gemm"].add(plan.str(), gemm_plan_us(p, access, plan, device));
      }
  }
}

void add_tensor_cores(AllTilings& all, ConvProblem p, DType storage, const DeviceProfile& device) {
  p.storage = p.x_storage = storage;
  const std::string of = storage == DType::f32 ? " of TF32" : "";
  const ConvProblem merged = with_merged_groups(p);
  for (const MmaTile tile : mma_tiles_for(mma_access(merged)))
    for (const std::int64_t split_k : {1, 2, 5, 8}) {
      MmaGemmPlan plan = tile_mma_gemm(merged, tile, split_k);
      plan.resident = even_resident(merged, plan, device);
      all["mma_gemm" + of].add(plan.str(), mma_gemm_us(merged, plan, device));
    }
  if (!refuse_wgmma_halo(p))
    for (const WgmmaHaloPlan& plan : wgmma_halo_tilings(p))
      all["wgmma_halo" + of].add(plan.str(), wgmma_halo_us(p, plan, device));
  if (!refuse_wgmma_halo(p))
    for (const HaloSplitKPlan& plan : halo_split_k_tilings(p))
      all["wgmma_halo, split-K" + of].add(plan.str(), halo_split_k_us(p, plan, device));
  if (storage != DType::f32) {
    for (const WgmmaGemmPlan& plan : wgmma_tilings(p))
      all["wgmma_gemm"].add(plan.str(), wgmma_plan_us(p, plan, device));
    return;
  }
  for (const WgmmaTf32Plan& plan : wgmma_tf32_tilings(p))
    all["wgmma_tf32"].add(plan.str(), wgmma_tf32_us(p, plan, device));
  if (p.groups == 1 || p.group_c() != p.group_k() || p.group_c() % 4 != 0) return;
  if (const std::int64_t eights = grouped_set_eights(p); eights == 0 || p.c % (8 * eights) != 0) return;
  for (const GroupedTiling& tiling : grouped_tilings(p))
    all["grouped_tf32"].add(tiling.str(), grouped_us(p, tiling, device));
}

void add_separable(AllTilings& all, DType storage, const DeviceProfile& device) {
  struct Row {
    std::int64_t n, c, size, k, stride, window;
  };
  for (const Row& row : {Row{1, 32, 112, 16, 1, 3}, Row{64, 96, 112, 24, 2, 3}, Row{8, 144, 56, 24, 1, 3},
                         Row{1, 576, 14, 96, 1, 3}, Row{64, 576, 14, 160, 2, 3}, Row{1, 960, 7, 320, 1, 3},
                         Row{3, 58, 28, 58, 1, 3}, Row{2, 8, 5, 1000, 1, 3}, Row{4, 64, 28, 32, 1, 5}}) {
    SeparableProblem p;
    ConvGeometry geometry{.stride = {row.stride, row.stride}, .groups = row.c};
    geometry.pads.fill(row.window / 2);
    p.depthwise = resolve_conv({row.n, row.c, row.size, row.size}, {row.c, 1, row.window, row.window}, geometry);
    p.pointwise = resolve_conv({row.n, row.c, p.depthwise.p, p.depthwise.q}, {row.k, row.c, 1, 1}, {});
    for (ConvProblem* half : {&p.depthwise, &p.pointwise}) half->storage = half->x_storage = storage;
    for (const SeparableTiling& tiling : separable_tilings(p, device))
      all[storage == DType::f32 ? "separable of TF32" : "separable"].add(tiling.str(),
                                                                         estimate_separable_us(p, tiling, device));
  }
}

std::string tilings_of(const std::vector<ConvProblem>& problems, const DeviceProfile& device) {
  AllTilings all;
  for (const ConvProblem& p : problems) {
    add_fp32(all, p, device);
    add_tensor_cores(all, p, DType::f16, device);
    add_tensor_cores(all, p, DType::f32, device);
  }
  add_separable(all, DType::f16, device);
  add_separable(all, DType::f32, device);
  std::string text;
  for (const auto& [name, tilings] : all)
    text += fmt::format("{}: {} tilings, {:.10g}, {:x}\n", name, tilings.count, tilings.log_us, tilings.words);
  return text;
}

}  // namespace

TEST_CASE("cuda_tilings/tilings_and_their_estimates_are_those_that_were_fitted") {
  const std::string_view expected = R"(fft: 113 tilings, 307.1453897, edfb72bb
grouped_tf32: 450 tilings, 881.2133636, 85993922
implicit_gemm: 5176 tilings, 10680.77338, 48dbbf2c
mma_gemm: 3380 tilings, 6233.987226, 1c166fd7
mma_gemm of TF32: 3680 tilings, 7223.543984, 113eef5d
separable: 183 tilings, 424.5820088, a88ad04a
separable of TF32: 175 tilings, 459.0299557, 913415f9
wgmma_gemm: 2213 tilings, 4528.59603, e9f1c70f
wgmma_halo: 1326 tilings, 2419.391094, 8ee80bb5
wgmma_halo of TF32: 1134 tilings, 2340.410635, fcda869b
wgmma_halo, split-K: 26 tilings, 47.19548935, 46b16764
wgmma_halo, split-K of TF32: 79 tilings, 161.5559478, d5c6773c
wgmma_tf32: 2852 tilings, 6819.614698, 7133425d
winograd: 93 tilings, 173.0128243, f825895a
)";
  std::vector<ConvProblem> problems = layers();
  for (const test::ConvCase& c : test::conv_cases()) problems.push_back(c.problem);
  CHECK(tilings_of(problems, reference_gpu()) == expected);
}

// Not measured: the limits of a plan's rules, and plans for another device.
TEST_CASE("cuda_tilings/tilings_and_estimates_of_odd_problems_and_of_a_small_device_are_as_before") {
  const std::pair<int, std::string_view> expected[] = {{132, R"(fft: 6 tilings, 16.40284524, e3a2dd75
grouped_tf32: 928 tilings, 1567.852734, a68f23d1
implicit_gemm: 16328 tilings, 29460.53323, 534fdb7d
mma_gemm: 8176 tilings, 14208.25649, 60deccb9
mma_gemm of TF32: 9996 tilings, 17637.11704, 3558c2
separable: 183 tilings, 424.5820088, a88ad04a
separable of TF32: 175 tilings, 459.0299557, 913415f9
wgmma_gemm: 5235 tilings, 10978.22837, 97beb120
wgmma_halo: 3442 tilings, 5752.564212, f781e776
wgmma_halo of TF32: 2946 tilings, 5406.864312, 3ab2f2b7
wgmma_halo, split-K: 76 tilings, 129.3280039, 976de37c
wgmma_halo, split-K of TF32: 287 tilings, 508.4354171, 966f5887
wgmma_tf32: 8499 tilings, 18587.52198, c7f7e2a8
winograd: 354 tilings, 580.6532446, 659a859e
)"},
                                                       {40, R"(fft: 6 tilings, 16.69925985, e3a2dd75
grouped_tf32: 928 tilings, 1507.253942, a68f23d1
implicit_gemm: 16328 tilings, 23924.61912, 669666e8
mma_gemm: 8176 tilings, 14612.07554, 2cff7062
mma_gemm of TF32: 9996 tilings, 18178.81592, ea5867ac
separable: 183 tilings, 451.6589849, cee4ede
separable of TF32: 175 tilings, 489.3998043, 81c7a173
wgmma_gemm: 5235 tilings, 11132.474, 97beb120
wgmma_halo: 3442 tilings, 5436.464301, f781e776
wgmma_halo of TF32: 2946 tilings, 5097.592412, 3ab2f2b7
wgmma_halo, split-K: 76 tilings, 114.7553742, 976de37c
wgmma_halo, split-K of TF32: 287 tilings, 441.5350099, 966f5887
wgmma_tf32: 8499 tilings, 17941.74163, c7f7e2a8
winograd: 354 tilings, 524.7916778, 1d8eec73
)"}};
  for (const auto& [units, text] : expected) {
    DeviceProfile device = reference_gpu();
    device.units = units;
    CHECK(tilings_of(odd_problems(), device) == text);
  }
}

}  // namespace lenslet::cuda
