// lenslet-bench-fft: cuts of fft on CUDA as CSV: sizes of tiles, chunks, tiles of the products. What the constants in
// ops/conv/cuda/fft_plan.cpp are to be fitted to. Each cut is a CUDA graph of many runs on the same memory. A row that
// starts with * is what the planner takes; cuts that the model puts beyond 1.6 times that are left out.

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/fft_plan.h"
#include "tests/cuda/cut_timer.h"

namespace lenslet {
namespace {

using namespace bench;
using namespace cuda;

constexpr double hopeless = 1.6;

struct Row {
  std::int64_t n, c, size, k, filter, pad;
};
constexpr Row rows[] = {
    // Beside cuDNN in docs/benchmarks.md.
    {8, 128, 96, 128, 5, 0},
    {64, 128, 96, 128, 5, 0},
    {8, 128, 57, 64, 5, 0},
    {64, 128, 57, 64, 5, 0},
    {64, 128, 10, 64, 5, 0},
    {8, 32, 28, 96, 5, 2},
    {64, 32, 28, 96, 5, 2},
    {1, 48, 35, 64, 5, 2},
    {8, 64, 56, 64, 7, 3},
    {64, 64, 56, 64, 7, 3},
    // Wide and narrow ones, few tiles, larger windows.
    {64, 48, 35, 64, 5, 2},
    {1, 256, 28, 256, 5, 2},
    {8, 256, 28, 256, 5, 2},
    {64, 256, 14, 256, 5, 2},
    {8, 16, 112, 16, 5, 2},
    {32, 16, 224, 16, 7, 3},
    {8, 256, 14, 256, 7, 3},
    {16, 96, 40, 200, 9, 4},
    {32, 24, 64, 48, 9, 4},
    {1, 64, 64, 64, 11, 5},
    {8, 64, 64, 64, 11, 5},
    {64, 32, 32, 32, 11, 0},
    {16, 192, 20, 128, 11, 5},
};

/// Of either size, in every tile, in so many chunks.
std::vector<FftPlan> cuts_of(const ConvProblem& p, const FftPlan& best) {
  std::vector<FftPlan> cuts{best};
  std::set<std::string> seen{best.str()};
  for (const int size : fft_sizes) {
    if (std::max(p.r, p.s) > largest_fft_window(size)) continue;
    const FftPlan planned = plan_fft(p, size, device_profile(0));
    const auto chunks = (planned.count + planned.chunk - 1) / planned.chunk;
    for (const int parts : {1, 2, 4, 8, 16, 32, 64, chunks}) {
      FftPlan plan = planned;
      plan.chunk = (planned.count + parts - 1) / parts;
      for (std::size_t tile = 0; tile < fft_product_tiles.size(); ++tile) {
        plan.tile = static_cast<FftProductTile>(tile);
        try {
          (void)read_fft_plan(p, plan.str());
        } catch (const Error&) {  // too large
          continue;
        }
        if (seen.insert(plan.str()).second) cuts.push_back(plan);
      }
    }
  }
  return cuts;
}

void measure(const Session& session, const Row& row) {
  const Kernel& algorithm = *find_kernel("Conv", DeviceKind::cuda, "fft");
  ConvGeometry geometry;
  geometry.pads.fill(row.pad);
  ConvProblem p = resolve_conv({row.n, row.c, row.size, row.size}, {row.k, row.c, row.filter, row.filter}, geometry);
  p.bias = true;
  p.activation.kind = Activation::Kind::relu;
  const DeviceProfile device = device_profile(0);
  const auto problem = pose(p, drawn({p.k, p.c, p.r, p.s}));
  const Offer offer = algorithm.offer(*problem, {.device = device});
  if (!offer.refusal.empty()) return;
  Candidate candidate = offer.candidates.at(0);
  const Format format = candidate.outputs[0];

  DeviceBuffer<float> x = upload(drawn({p.n, p.c, p.h, p.w}).values<float>());
  DeviceBuffer<float> bias = upload(drawn({p.k}).values<float>());
  DeviceBuffer<float> y(static_cast<std::size_t>(p.n * p.k * p.p * p.q));
  DeviceBuffer<std::byte> workspace(std::size_t{256} << 20);
  const Tensor inputs[] = {Tensor::view(DType::f32, {p.n, p.c, p.h, p.w}, x.data(), format), Tensor(),
                           Tensor::view(DType::f32, {p.k}, bias.data())};
  Tensor outputs[] = {Tensor::view(DType::f32, {p.n, p.k, p.p, p.q}, y.data(), format)};

  const FftPlan planned = plan_fft(p, device);
  const double planned_us = estimate_fft_us(p, planned, device);
  DeviceBuffer<std::byte> blob;
  int blob_size = 0;
  for (const FftPlan& plan : cuts_of(p, planned)) {
    const double estimated_us = estimate_fft_us(p, plan, device);
    if (estimated_us > hopeless * planned_us) continue;
    candidate.config = plan.str();
    if (plan.size != blob_size) {
      std::vector<std::byte> host_blob(algorithm.blob(*problem, candidate).value().bytes);
      algorithm.prepare(*problem, candidate, host_blob);
      blob = upload(host_blob);
      blob_size = plan.size;
    }
    const auto bound = algorithm.bind({*problem, candidate, device});
    const KernelRun run{.inputs = inputs,
                        .outputs = outputs,
                        .workspace = {workspace.data(), bound->workspace_bytes()},
                        .blob = blob.data()};
    fmt::print("{}fft,\"{}\",{},{:.2f},{:.2f},{:.2f}\n", plan.str() == planned.str() ? "*" : "", p.str(), plan.str(),
               measure_us(session, *bound, run), estimated_us, p.flops() / device.fp32_flops_per_us);
    std::fflush(stdout);
  }
}

int main() {
  const Session session(0);
  fmt::print("algorithm,problem,config,us,estimated_us,plain_sums_us\n");
  for (const Row& row : rows) measure(session, row);
  return 0;
}

}  // namespace
}  // namespace lenslet

int main() {
  try {
    return lenslet::main();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lenslet-bench-fft: %s\n", error.what());
    return 1;
  }
}
