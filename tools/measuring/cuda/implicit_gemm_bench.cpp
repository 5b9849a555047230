// lenslet-bench-implicit-gemm [PRECISION [ALGORITHM [PROBLEM...]]]: times tile configurations on problems of known
// networks and prints CSV. fp32: implicit_gemm; other precisions: mma_gemm, wgmma_gemm, wgmma_tf32, wgmma_halo and
// grouped_tf32, or the named algorithm. tools/scripts/refit.py fits constants to the rows "fitted" and judges them by
// "unseen". A problem is N,C,SIZE,K,FILTER,STRIDE[,GROUPS[,1 with a residual]]. Configurations estimated beyond three
// times the best are skipped. Each one is a CUDA graph of many runs on the same memory, so weights up to the size of L2
// come from L2; blocks are spread evenly as planned. A row with * is the planner's choice. Split-K that fits a cluster
// is timed both ways: reduced in the cluster, and by a second kernel.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/error.h"
#include "ops/conv/cuda/grouped_mma_plan.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "ops/conv/cuda/mma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_halo_plan.h"
#include "ops/conv/cuda/wgmma_halo_split_k_plan.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "tools/measuring/cuda/command_line.h"
#include "tools/measuring/cuda/config_timer.h"

namespace lenslet {
namespace {

using namespace bench;
using namespace cuda;

constexpr double much = 3;
constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

using Row = ConvRow;

// First layers, ResNet-50, VGG-16, MobileNetV2, SqueezeNet; a few at larger batch sizes.
constexpr Row fitted[] = {
    {1, 3, 224, 64, 7, 2},    {1, 64, 56, 64, 1, 1},    {1, 64, 56, 64, 3, 1},    {1, 64, 56, 256, 1, 1},
    {1, 256, 56, 64, 1, 1},   {1, 256, 56, 128, 1, 1},  {1, 128, 56, 128, 3, 2},  {1, 128, 28, 512, 1, 1},
    {1, 256, 56, 512, 1, 2},  {1, 512, 28, 128, 1, 1},  {1, 128, 28, 128, 3, 1},  {1, 512, 28, 256, 1, 1},
    {1, 256, 28, 256, 3, 2},  {1, 256, 14, 1024, 1, 1}, {1, 1024, 14, 256, 1, 1}, {1, 256, 14, 256, 3, 1},
    {1, 1024, 14, 512, 1, 1}, {1, 512, 14, 512, 3, 2},  {1, 512, 7, 2048, 1, 1},  {1, 2048, 7, 512, 1, 1},
    {1, 512, 7, 512, 3, 1},   {1, 3, 224, 64, 3, 1},    {1, 64, 224, 64, 3, 1},   {1, 128, 112, 128, 3, 1},
    {1, 256, 56, 256, 3, 1},  {1, 512, 28, 512, 3, 1},  {1, 512, 14, 512, 3, 1},  {1, 16, 112, 96, 1, 1},
    {1, 144, 56, 24, 1, 1},   {1, 384, 14, 64, 1, 1},   {1, 320, 7, 1280, 1, 1},  {1, 32, 27, 128, 3, 1},
    {1, 512, 13, 1000, 1, 1}, {8, 256, 14, 256, 3, 1},  {8, 2048, 7, 512, 1, 1},  {64, 64, 56, 64, 3, 1},
};

// Layers of DenseNet-121, Inception v3, ResNet-18 and EfficientNet-Lite0, and of ResNet-50 at other batch sizes.
constexpr Row unseen[] = {
    {1, 96, 56, 128, 1, 1},  {1, 128, 56, 32, 3, 1},   {1, 320, 28, 128, 1, 1},  {1, 640, 14, 128, 1, 1},
    {1, 128, 14, 32, 3, 1},  {1, 832, 7, 128, 1, 1},   {1, 3, 299, 32, 3, 2},    {1, 32, 147, 64, 3, 1},
    {1, 80, 73, 192, 3, 1},  {1, 48, 35, 64, 5, 1},    {1, 288, 35, 64, 1, 1},   {1, 96, 35, 96, 3, 1},
    {1, 768, 17, 192, 1, 1}, {1, 448, 8, 384, 3, 1},   {1, 2048, 8, 448, 1, 1},  {1, 64, 56, 128, 3, 2},
    {1, 256, 14, 512, 3, 2}, {1, 40, 28, 240, 1, 1},   {1, 112, 14, 672, 1, 1},  {1, 1152, 7, 192, 1, 1},
    {2, 512, 7, 512, 3, 1},  {4, 256, 14, 1024, 1, 1}, {8, 256, 56, 64, 1, 1},   {8, 256, 14, 1024, 1, 1},
    {8, 512, 7, 2048, 1, 1}, {8, 128, 28, 128, 3, 1},  {16, 512, 14, 256, 1, 1},
};

/// Additional problems for tensor cores, at larger batch sizes.
constexpr Row batches[] = {
    {8, 64, 56, 256, 1, 1},    {8, 128, 28, 128, 3, 1},   {8, 256, 56, 256, 3, 1},  {64, 256, 56, 64, 1, 1},
    {64, 64, 56, 256, 1, 1},   {64, 128, 28, 512, 1, 1},  {64, 512, 28, 128, 1, 1}, {64, 128, 28, 128, 3, 1},
    {64, 1024, 14, 256, 1, 1}, {64, 256, 14, 1024, 1, 1}, {64, 256, 14, 256, 3, 1}, {64, 512, 7, 512, 3, 1},
    {64, 512, 7, 2048, 1, 1},  {64, 128, 112, 128, 3, 1}, {64, 512, 28, 512, 3, 1}, {64, 96, 56, 24, 1, 1},
    {64, 32, 112, 16, 1, 1},   {64, 144, 28, 32, 1, 1},   {64, 960, 7, 320, 1, 1},
};

/// Few channels: SqueezeNet's and MobileNetV2's expanding layers.
constexpr Row narrow[] = {
    {1, 16, 55, 64, 1, 1},   {1, 16, 55, 64, 3, 1},   {1, 32, 27, 128, 1, 1},  {1, 24, 56, 144, 1, 1},
    {1, 32, 28, 192, 1, 1},  {8, 16, 55, 64, 1, 1},   {8, 16, 55, 64, 3, 1},   {8, 32, 27, 128, 3, 1},
    {8, 24, 56, 144, 1, 1},  {64, 16, 55, 64, 1, 1},  {64, 16, 55, 64, 3, 1},  {64, 32, 27, 128, 1, 1},
    {64, 32, 27, 128, 3, 1}, {64, 16, 112, 96, 1, 1}, {64, 24, 56, 144, 1, 1}, {64, 32, 28, 192, 1, 1},
    {64, 48, 13, 192, 1, 1}, {64, 48, 13, 192, 3, 1},
};

/// Overlapping windows of all the networks above, GoogLeNet and DenseNet.
constexpr Row overlapping[] = {
    {1, 64, 56, 64, 3, 1},    {1, 64, 224, 64, 3, 1},   {1, 128, 112, 128, 3, 1}, {1, 256, 56, 256, 3, 1},
    {8, 64, 56, 64, 3, 1},    {8, 128, 28, 128, 3, 1},  {8, 16, 55, 64, 3, 1},    {8, 256, 56, 256, 3, 1},
    {64, 64, 56, 64, 3, 1},   {64, 128, 28, 128, 3, 1}, {64, 256, 14, 256, 3, 1}, {64, 512, 7, 512, 3, 1},
    {64, 16, 55, 64, 3, 1},   {64, 32, 27, 128, 3, 1},  {64, 48, 13, 192, 3, 1},  {64, 64, 13, 256, 3, 1},
    {64, 128, 56, 32, 3, 1},  {64, 128, 28, 32, 3, 1},  {64, 128, 14, 32, 3, 1},  {64, 64, 56, 192, 3, 1},
    {64, 96, 28, 128, 3, 1},  {64, 16, 28, 32, 5, 1},   {64, 32, 28, 96, 5, 1},   {64, 48, 35, 64, 5, 1},
    {64, 64, 112, 128, 3, 1}, {64, 128, 56, 256, 3, 1}, {64, 512, 28, 512, 3, 1}, {64, 64, 28, 64, 7, 1},
};

/// ResNeXt-50 32x4d and RegNets: groups of 4, 8, 16, 24, 32 and 48 channels.
constexpr Row grouped[] = {
    {1, 128, 56, 128, 3, 1, 32},   {1, 256, 28, 256, 3, 1, 32},    {1, 512, 14, 512, 3, 1, 32},
    {1, 1024, 14, 1024, 3, 2, 32}, {1, 1024, 7, 1024, 3, 1, 32},   {1, 144, 28, 144, 3, 1, 6},
    {8, 256, 28, 256, 3, 1, 32},   {8, 1024, 7, 1024, 3, 1, 32},   {64, 128, 56, 128, 3, 1, 32},
    {64, 256, 56, 256, 3, 2, 32},  {64, 256, 28, 256, 3, 1, 32},   {64, 512, 28, 512, 3, 2, 32},
    {64, 512, 14, 512, 3, 1, 32},  {64, 1024, 14, 1024, 3, 2, 32}, {64, 1024, 7, 1024, 3, 1, 32},
    {64, 72, 56, 72, 3, 1, 3},     {64, 144, 28, 144, 3, 1, 6},    {64, 320, 14, 320, 3, 1, 20},
    {64, 432, 14, 432, 3, 1, 9},
};

struct Tiling {
  std::string config;
  double estimated_us = 0;
  bool taken = false;  ///< the planner's choice
};

std::vector<std::int64_t> split_k_counts(std::int64_t planned) {
  std::vector<std::int64_t> counts{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, planned};
  std::sort(counts.begin(), counts.end());
  return counts;
}

std::vector<Tiling> implicit_gemm_tilings(const ConvProblem& p, const Format& format, const DeviceProfile& device) {
  const GemmAccess access = gemm_access(p, format);
  const ImplicitGemmPlan planned = plan_implicit_gemm(p, access);
  std::vector<Tiling> tilings;
  for (const GemmTile tile : gemm_tiles_for(access)) {
    std::int64_t last = 0;
    for (const std::int64_t split_k : split_k_counts(tile == planned.tile ? planned.split_k : 1)) {
      ImplicitGemmPlan plan = tile_gemm(p, tile, split_k);
      if (plan.split_k == last || plan.workspace_bytes > workspace_bytes) continue;
      last = plan.split_k;
      const auto add = [&] {
        ImplicitGemmPlan even = plan;
        even.resident = even_resident(p, plan, device);
        tilings.push_back({even.str(), gemm_plan_us(p, access, plan, device), plan.str() == planned.str()});
      };
      if (plan.cluster > 1 && device.clusters) add();
      plan.cluster = 1;
      add();
    }
  }
  return tilings;
}

std::vector<Tiling> mma_gemm_tilings(const ConvProblem& problem, const DeviceProfile& device) {
  const ConvProblem p = with_merged_groups(problem);
  const MmaGemmPlan planned = plan_mma_gemm(p, device.clusters);
  std::vector<Tiling> tilings;
  for (const MmaTile tile : mma_tiles_for(mma_access(p))) {
    std::int64_t last = 0;
    for (std::int64_t split_k = 1; split_k <= (device.clusters ? max_cluster : 1); ++split_k) {
      MmaGemmPlan plan = tile_mma_gemm(p, tile, split_k);
      if (plan.split_k == last) continue;
      last = plan.split_k;
      plan.resident = even_resident(p, plan, device);
      tilings.push_back(
          {plan.str(), mma_gemm_us(p, plan, device), plan.tile == planned.tile && plan.split_k == planned.split_k});
    }
  }
  return tilings;
}

std::vector<Tiling> tilings_of(std::string_view name, const ConvProblem& p, const Candidate& offered,
                               const DeviceProfile& device) {
  std::vector<Tiling> tilings;
  const auto add = [&](const std::string& config, double us) {
    tilings.push_back({config, us, config == offered.config});
  };
  if (name == "mma_gemm") return mma_gemm_tilings(p, device);
  if (name == "wgmma_gemm")
    for (const WgmmaGemmPlan& plan : wgmma_tilings(p)) add(plan.str(), wgmma_plan_us(p, plan, device));
  else if (name == "wgmma_tf32")
    for (const WgmmaTf32Plan& plan : wgmma_tf32_tilings(p)) add(plan.str(), wgmma_tf32_us(p, plan, device));
  else if (name == "wgmma_halo") {
    for (const WgmmaHaloPlan& plan : wgmma_halo_tilings(p)) add(plan.str(), wgmma_halo_us(p, plan, device));
    for (const HaloSplitKPlan& plan : halo_split_k_tilings(p)) add(plan.str(), halo_split_k_us(p, plan, device));
  } else if (name == "grouped_tf32") {
    for (const GroupedTiling& tiling : grouped_tilings(p))
      if (!device.refuse_shared(tiling.shared_bytes())) add(tiling.str(), grouped_us(p, tiling, device));
  } else {
    return implicit_gemm_tilings(p, offered.outputs[0], device);
  }
  return tilings;
}

void measure(const Session& session, std::string_view name, std::string_view set, const Row& row,
             const Numerics& numerics = {}) {
  const ConvProblem p = row.problem(numerics.storage);
  TimedConv conv(session, name, p, numerics);
  if (!conv.offered()) return;
  const Candidate& offered = *conv.offered();
  const DeviceProfile& device = conv.device();
  const std::vector<Tiling> tilings = tilings_of(name, p, offered, device);
  double planned_us = offered.estimated_us;
  for (const Tiling& tiling : tilings)
    if (tiling.taken) planned_us = tiling.estimated_us;
  for (const Tiling& tiling : tilings) {
    if (tiling.estimated_us > much * planned_us) continue;
    fmt::print("{}{},{},\"{}\",{},{:.2f},{:.2f},{:.2f},{:.2f}\n", tiling.taken ? "*" : "", set, name, p.str(),
               tiling.config, conv.us(tiling.config), tiling.estimated_us,
               p.flops() / device.flops_per_us(numerics.multiply), p.bytes() / device.bytes_per_us);
  }
}

/// "64,144,56,144,3,1,144"
Row read_row(const std::string& text) {
  long long n = 0, c = 0, size = 0, k = 0, filter = 0, stride = 0, groups = 1, residual = 0;
  const int read = std::sscanf(text.c_str(), "%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld", &n, &c, &size, &k, &filter,
                               &stride, &groups, &residual);
  if (read < 6) throw Error(ErrorKind::invalid_argument, text + ": not N,C,SIZE,K,FILTER,STRIDE[,GROUPS[,1]]");
  return {n, c, size, k, filter, stride, groups, residual != 0};
}

void run_all(std::span<const std::string_view> arguments) {
  const std::string_view precision = arguments.empty() ? "fp32" : arguments[0];
  const std::string_view only = arguments.size() > 1 ? arguments[1] : "";
  const auto problems = arguments.subspan(std::min<std::size_t>(arguments.size(), 2));
  const Session session(0);
  const Numerics numerics = parse_numerics(precision);
  fmt::print("set,algorithm,problem,config,us,estimated_us,flops_us,bytes_us\n");
  for (const std::string_view text : problems) measure(session, only, "asked", read_row(std::string(text)), numerics);
  if (!problems.empty()) return;
  if (numerics != Numerics()) {
    for (const std::string_view algorithm : {"mma_gemm", "wgmma_gemm", "wgmma_tf32"}) {
      if (!only.empty() && algorithm != only) continue;
      for (const Row& row : fitted) measure(session, algorithm, "fitted", row, numerics);
      for (const Row& row : batches) measure(session, algorithm, "fitted", row, numerics);
      for (const Row& row : narrow) measure(session, algorithm, "fitted", row, numerics);
      for (const Row& row : unseen) measure(session, algorithm, "unseen", row, numerics);
    }
    if (only.empty() || only == "wgmma_halo")
      for (const Row& row : overlapping) measure(session, "wgmma_halo", "fitted", row, numerics);
    for (const std::string_view algorithm : {"mma_gemm", "grouped_tf32"})
      if (only.empty() || algorithm == only)
        for (const Row& row : grouped) measure(session, algorithm, "grouped", row, numerics);
    return;
  }
  for (const Row& row : fitted) measure(session, "implicit_gemm", "fitted", row);
  for (const Row& row : unseen) measure(session, "implicit_gemm", "unseen", row);
  for (const Row& row : fitted)
    if (row.filter == 3 && row.n == 1) measure(session, "implicit_gemm_nchw", "fitted", row);
  for (const Row& row : unseen)
    if (row.filter == 3 && row.n == 1) measure(session, "implicit_gemm_nchw", "unseen", row);
}

}  // namespace
}  // namespace lenslet

int main(int argc, char** argv) {
  return lenslet::bench::run("lenslet-bench-implicit-gemm", argc, argv, lenslet::run_all);
}
