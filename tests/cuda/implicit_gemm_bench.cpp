// lenslet-bench-implicit-gemm: every cut of implicit_gemm on problems of known networks, as CSV: what the constants in
// ops/conv/cuda/implicit_gemm_plan.cpp are fitted to, and on others, which they are held to (tools/scripts/
// refit_conv.py). Cuts that the model puts beyond three times the best are left out. Each cut is a CUDA graph of many
// runs on the same memory, so weights up to the size of L2 come from there; blocks are spread evenly as the planner has
// it. A row that starts with * is what the planner takes. Cuts into slices that a cluster can add up are measured in
// both forms: with clusters, and added up by a second kernel.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "base/cuda/graph.h"
#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"

namespace lenslet {
namespace {

using namespace cuda;

constexpr int runs_a_graph = 20;
constexpr int replays = 5;
constexpr double hopeless = 3;

struct Row {
  std::int64_t n, c, size, k, filter, stride;
};

// ResNet-50 and the first layers' kin, VGG-16, MobileNetV2, SqueezeNet; a few at larger batch.
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

/// Median time of one run in us; run.cuda is the session's.
double measure_us(const Session& session, const BoundKernel& bound, KernelRun run) {
  GraphRecorder recorder;
  Context context = session.context();
  context.recorder = &recorder;
  run.cuda = &context;
  for (int i = 0; i < runs_a_graph; ++i) bound.run(run);
  const GraphExec graph(recorder);
  std::vector<double> us;
  for (int i = 0; i < replays + 1; ++i) {
    Event start, stop;
    start.record(session.stream());
    graph.launch(session.stream());
    stop.record(session.stream());
    stop.synchronize();
    if (i > 0) us.push_back(1e3 * static_cast<double>(stop.ms_since(start)) / runs_a_graph);
  }
  std::nth_element(us.begin(), us.begin() + replays / 2, us.end());
  return us[replays / 2];
}

/// Drawn values: zeros let the device run at a higher clock.
Tensor drawn(const Shape& shape) {
  static std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Tensor tensor(DType::f32, shape);
  for (float& value : tensor.values<float>()) value = uniform(random);
  return tensor;
}

void measure(const Session& session, std::string_view name, std::string_view set, const Row& row) {
  const Kernel& algorithm = *find_kernel("Conv", DeviceKind::cuda, name);
  ConvGeometry geometry;
  geometry.pads.fill(row.filter / 2);
  geometry.stride = {row.stride, row.stride};
  ConvProblem p = resolve_conv({row.n, row.c, row.size, row.size}, {row.k, row.c, row.filter, row.filter}, geometry);
  p.bias = true;
  p.activation.kind = Activation::Kind::relu;
  const DeviceProfile device = device_profile(0);
  const auto problem = pose(p, drawn({p.k, p.c, p.r, p.s}));
  Candidate candidate = algorithm.offer(*problem, {.device = device}).candidates.at(0);
  const Format format = candidate.outputs[0];
  const GemmAccess access = gemm_access(p, format);

  std::vector<std::byte> host_blob(algorithm.blob(*problem, candidate).value().bytes);
  algorithm.prepare(*problem, candidate, host_blob);
  const DeviceBuffer<std::byte> blob = upload(host_blob);
  DeviceBuffer<float> x = upload(drawn({p.n, p.c, p.h, p.w}).values<float>()),
                      bias = upload(drawn({p.k}).values<float>());
  DeviceBuffer<float> y(static_cast<std::size_t>(p.n * p.k * p.p * p.q));
  DeviceBuffer<std::byte> workspace(std::size_t{64} << 20);
  const Tensor inputs[] = {Tensor::view(DType::f32, {p.n, p.c, p.h, p.w}, x.data(), format), Tensor(),
                           Tensor::view(DType::f32, {p.k}, bias.data())};
  Tensor outputs[] = {Tensor::view(DType::f32, {p.n, p.k, p.p, p.q}, y.data(), format)};
  const KernelRun run{
      .inputs = inputs, .outputs = outputs, .workspace = {workspace.data(), workspace.bytes()}, .blob = blob.data()};

  const ImplicitGemmPlan planned = plan_implicit_gemm(p, access);
  const double planned_us = gemm_plan_us(p, access, planned, device);
  for (const GemmTile tile : gemm_tiles_for(access)) {
    std::int64_t last = 0;
    std::vector<std::int64_t> counts{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
    if (tile == planned.tile) counts.push_back(planned.slices);
    std::sort(counts.begin(), counts.end());
    for (const std::int64_t slices : counts) {
      ImplicitGemmPlan plan = cut_gemm(p, tile, slices);
      if (plan.slices == last || plan.workspace_bytes > workspace.bytes()) continue;
      last = plan.slices;
      const auto print = [&] {
        const double estimated_us = gemm_plan_us(p, access, plan, device);
        if (estimated_us > hopeless * planned_us) return;
        const bool taken = plan.str() == planned.str();
        ImplicitGemmPlan even = plan;
        even.resident = even_resident(p, plan, device);
        candidate.config = even.str();
        const auto bound = algorithm.bind({*problem, candidate, device});
        fmt::print("{}{},{},\"{}\",{}x{},{},{},{},{},{:.2f},{:.2f},{:.2f},{:.2f}\n", taken ? "*" : "", set,
                   algorithm.name(), p.str(), shape_of(tile).m, shape_of(tile).n, plan.slices, plan.cluster,
                   plan.steps_a_slice, plan.tiles_m * plan.tiles_n * plan.slices, measure_us(session, *bound, run),
                   estimated_us, p.flops() / device.fp32_flops_per_us, p.bytes() / device.bytes_per_us);
      };
      if (plan.cluster > 1 && device.clusters) print();
      plan.cluster = 1;
      print();
    }
  }
}

int main() {
  const Session session(0);
  fmt::print("set,algorithm,problem,tile,slices,cluster,steps_a_slice,blocks,us,estimated_us,flops_us,bytes_us\n");
  for (const Row& row : fitted) measure(session, "implicit_gemm", "fitted", row);
  for (const Row& row : unseen) measure(session, "implicit_gemm", "unseen", row);
  for (const Row& row : fitted)
    if (row.filter == 3 && row.n == 1) measure(session, "implicit_gemm_nchw", "fitted", row);
  for (const Row& row : unseen)
    if (row.filter == 3 && row.n == 1) measure(session, "implicit_gemm_nchw", "unseen", row);
  return 0;
}

}  // namespace
}  // namespace lenslet

int main() {
  try {
    return lenslet::main();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lenslet-bench-implicit-gemm: %s\n", error.what());
    return 1;
  }
}
