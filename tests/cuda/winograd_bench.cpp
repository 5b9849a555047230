// lenslet-bench-winograd [R]: cuts of Winograd on CUDA, of R x R filters or all, as CSV: chunks, tiles of the product,
// and wide transforms. What the constants in ops/conv/cuda/winograd_plan.cpp are to be fitted to. Each
// cut is a CUDA graph of many runs on the same memory. A row that starts with * is what the planner takes; cuts that
// the model puts beyond 1.6 times that are left out.

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
#include "ops/conv/cuda/winograd_plan.h"
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
    // Where cuDNN transforms, too.
    {8, 128, 96, 128, 5, 0},
    {64, 128, 96, 128, 5, 0},
    {8, 128, 57, 64, 5, 0},
    {64, 128, 57, 64, 5, 0},
    {64, 128, 10, 64, 5, 0},
    {64, 128, 10, 64, 5, 2},
    // Inception's and MNIST's at batch 1 and more; wide and narrow ones.
    {1, 32, 28, 96, 5, 2},
    {1, 48, 35, 64, 5, 2},
    {1, 8, 14, 16, 5, 2},
    {8, 48, 35, 64, 5, 2},
    {64, 48, 35, 64, 5, 2},
    {1, 256, 28, 256, 5, 2},
    {8, 512, 14, 512, 5, 2},
    {8, 16, 112, 16, 5, 2},
    {1, 64, 56, 64, 7, 3},
    {8, 64, 56, 64, 7, 3},
    {64, 64, 56, 64, 7, 3},
    {8, 256, 14, 256, 7, 3},
    {8, 64, 224, 64, 3, 1},
    {64, 64, 56, 64, 3, 1},
    {64, 128, 28, 128, 3, 1},
    {64, 256, 14, 256, 3, 1},
    {64, 256, 56, 256, 3, 1},
};

/// In every tile, in so many chunks.
std::vector<WinogradPlan> cuts_of(const ConvProblem& p, const WinogradPlan& planned) {
  std::vector<WinogradPlan> cuts{planned};
  std::set<std::string> seen{planned.str()};
  const auto add = [&](const WinogradPlan& plan) {
    try {
      (void)read_winograd_plan(p, plan.m, plan.str());
    } catch (const Error&) {  // too large, or no kernel
      return;
    }
    if (seen.insert(plan.str()).second) cuts.push_back(plan);
  };
  const auto chunks = (planned.count + planned.chunk - 1) / planned.chunk;
  for (const int parts : {1, 2, 4, 8, 16, 32, 64, chunks}) {
    WinogradPlan plan = planned;
    plan.chunk = (planned.count + parts - 1) / parts;
    for (const GemmTile tile : AllGemmTiles::all)
      for (const bool wide : {false, true}) {
        plan.tile = tile;
        plan.wide_input = plan.wide_output = wide;
        add(plan);
      }
  }
  return cuts;
}

void measure(const Session& session, std::string_view name, int m, const Row& row) {
  const Kernel& algorithm = *find_kernel("Conv", DeviceKind::cuda, name);
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

  std::vector<std::byte> host_blob(algorithm.blob(*problem, candidate).value().bytes);
  algorithm.prepare(*problem, candidate, host_blob);
  const DeviceBuffer<std::byte> blob = upload(host_blob);
  DeviceBuffer<float> x = upload(drawn({p.n, p.c, p.h, p.w}).values<float>());
  DeviceBuffer<float> bias = upload(drawn({p.k}).values<float>());
  DeviceBuffer<float> y(static_cast<std::size_t>(p.n * p.k * p.p * p.q));
  DeviceBuffer<std::byte> workspace(std::size_t{256} << 20);
  const Tensor inputs[] = {Tensor::view(DType::f32, {p.n, p.c, p.h, p.w}, x.data(), format), Tensor(),
                           Tensor::view(DType::f32, {p.k}, bias.data())};
  Tensor outputs[] = {Tensor::view(DType::f32, {p.n, p.k, p.p, p.q}, y.data(), format)};

  const WinogradPlan planned = plan_winograd(p, m, device);
  const double planned_us = estimate_winograd_us(p, planned, device);
  for (const WinogradPlan& plan : cuts_of(p, planned)) {
    const double estimated_us = estimate_winograd_us(p, plan, device);
    if (estimated_us > hopeless * planned_us) continue;
    candidate.config = plan.str();
    const auto bound = algorithm.bind({*problem, candidate, device});
    const KernelRun run{.inputs = inputs,
                        .outputs = outputs,
                        .workspace = {workspace.data(), bound->workspace_bytes()},
                        .blob = blob.data()};
    fmt::print("{}{},\"{}\",{},{:.2f},{:.2f},{:.2f}\n", plan.str() == planned.str() ? "*" : "", name, p.str(),
               plan.str(), measure_us(session, *bound, run), estimated_us, p.flops() / device.fp32_flops_per_us);
    std::fflush(stdout);
  }
}

int main(std::string_view filter) {
  const Session session(0);
  fmt::print("algorithm,problem,config,us,estimated_us,plain_sums_us\n");
  for (const Row& row : rows) {
    if (!filter.empty() && filter != std::to_string(row.filter)) continue;
    if (row.filter == 3) measure(session, "winograd_f4", 4, row);
    if (row.filter == 5) measure(session, "winograd_f4_5x5", 4, row);
    if (row.filter == 5 && row.n * row.size < 600) measure(session, "winograd_f2_5x5", 2, row);
    if (row.filter == 7) measure(session, "winograd_f2_7x7", 2, row);
  }
  return 0;
}

}  // namespace
}  // namespace lenslet

int main(int argc, char** argv) {
  try {
    return lenslet::main(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lenslet-bench-winograd: %s\n", error.what());
    return 1;
  }
}
