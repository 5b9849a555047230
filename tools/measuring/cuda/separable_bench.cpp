// lenslet-bench-separable [BATCH ...]: MobileNetV2's depthwise convolutions with the following 1x1 convolutions, fp16,
// as CSV: by the two kernels that the rule chooses, and by the configurations of separable with a competitive estimate.
// The constants in ops/conv/cuda/separable_plan.cpp are fitted to it. Each row is a CUDA graph of many runs on the same
// memory; a row with * is the planner's choice. floor_us: the bytes at 4.3 TB/s.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/aligned_format.h"
#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "ops/conv/cuda/separable_plan.h"
#include "ops/core/choose.h"
#include "tools/measuring/cuda/command_line.h"
#include "tools/measuring/cuda/config_timer.h"
#include "tools/measuring/separable_layer.h"

namespace lenslet {
namespace {

using namespace bench;
using namespace cuda;

constexpr SeparableLayer layers[] = {
    {32, 112, 1, 16},       {96, 112, 2, 24},  {144, 56, 1, 24, true}, {144, 56, 2, 32},
    {192, 28, 1, 32, true}, {192, 28, 2, 64},  {384, 14, 1, 64, true}, {384, 14, 1, 96},
    {576, 14, 1, 96, true}, {576, 14, 2, 160}, {960, 7, 1, 160, true}, {960, 7, 1, 320},
    {64, 112, 2, 128},      {128, 56, 1, 128}, {256, 28, 1, 256},      {512, 14, 1, 512},
};

/// A bound kernel with the memory of its runs.
struct Prepared {
  Prepared(const Kernel& kernel, const Problem& problem, const Candidate& candidate, const DeviceProfile& device)
      : bound(kernel.bind({problem, candidate, device})), workspace(bound->workspace_bytes() + 256) {
    std::vector<std::byte> host(kernel.blob(problem, candidate).value().bytes);
    kernel.prepare(problem, candidate, host);
    blob = upload(host);
  }
  std::unique_ptr<const BoundKernel> bound;
  DeviceBuffer<std::byte> blob, workspace;

  KernelRun run(std::span<const Tensor> inputs, std::span<Tensor> outputs) const {
    return {.inputs = inputs,
            .outputs = outputs,
            .workspace = {const_cast<std::byte*>(workspace.data()), bound->workspace_bytes()},
            .blob = blob.data()};
  }
};

/// Runs two kernels in sequence.
class Both final : public BoundKernel {
 public:
  Both(const BoundKernel& first, KernelRun of_first, const BoundKernel& second, KernelRun of_second)
      : first_(first), second_(second), of_first_(of_first), of_second_(of_second) {}
  void run(const KernelRun& run) const override {
    KernelRun of_first = of_first_, of_second = of_second_;
    of_first.cuda = of_second.cuda = run.cuda;
    first_.run(of_first);
    second_.run(of_second);
  }

 private:
  const BoundKernel &first_, &second_;
  KernelRun of_first_, of_second_;
};

void measure(const Session& session, const SeparableProblem& problem, const Numerics& numerics) {
  const ConvProblem &d = problem.depthwise, &p = problem.pointwise;
  const DeviceProfile device = device_profile(0);
  const Target target{.device = device, .numerics = numerics};
  const Tensor depthwise_filter = drawn({d.c, 1, 3, 3}), depthwise_bias = drawn({d.c}),
               filter = drawn({p.k, p.c, 1, 1});
  const Kernel& kernel = *find_kernel("SeparableConv", DeviceKind::cuda, "separable");
  const Tensor bias_values = drawn({p.k});
  const auto posed = pose(problem, depthwise_filter, depthwise_bias, filter, bias_values);
  const Offer offer = kernel.offer(*posed, target);
  if (!offer.refusal.empty()) throw Error(ErrorKind::internal, offer.refusal);
  Candidate candidate = offer.candidates.at(0);

  const std::int64_t y_elements = p.n * p.k * p.p * p.q;
  const DType storage = numerics.storage;
  DeviceBuffer<std::byte> x = drawn_on_device(storage, d.n * d.c * d.h * d.w),
                          residual = drawn_on_device(storage, y_elements);
  DeviceBuffer<std::byte> between(static_cast<std::size_t>(p.n * p.c * p.p * p.q) * dtype_bytes(storage));
  DeviceBuffer<std::byte> y(residual.bytes()), y_of_both(residual.bytes());
  DeviceBuffer<float> bias = upload(bias_values.values<float>());
  DeviceBuffer<float> first_bias = upload(depthwise_bias.values<float>());
  const auto view = [&](const Shape& shape, DeviceBuffer<std::byte>& at) {
    return Tensor::view(storage, shape, at.data(), formats::nhwc);
  };
  const Tensor x_view = view({d.n, d.c, d.h, d.w}, x), between_view = view({p.n, p.c, p.p, p.q}, between);
  const Tensor residual_view = p.residual ? view({p.n, p.k, p.p, p.q}, residual) : Tensor();
  const Tensor bias_view = Tensor::view(DType::f32, {p.k}, bias.data());
  Tensor y_view[] = {view({p.n, p.k, p.p, p.q}, y)}, both_view[] = {view({p.n, p.k, p.p, p.q}, y_of_both)};

  // The two separate kernels.
  const auto posed_first = pose(d, depthwise_filter), posed_second = pose(p, filter);
  const Choice first = choose_kernel(*posed_first, target, d.str()),
               second = choose_kernel(*posed_second, target, p.str());
  const Prepared of_first(*first.kernel, *posed_first, first.candidate, device);
  const Prepared of_second(*second.kernel, *posed_second, second.candidate, device);
  const Tensor first_in[] = {x_view, Tensor(), Tensor::view(DType::f32, {d.c}, first_bias.data())};
  Tensor first_out[] = {between_view};
  const Tensor second_in[] = {between_view, Tensor(), bias_view, residual_view};
  const Both both(*of_first.bound, of_first.run(first_in, first_out), *of_second.bound,
                  of_second.run(second_in, both_view));
  const double floor = problem.bytes() / 4.3e6;
  fmt::print("{} and {},\"{}\",\"{}; {}\",{:.2f},{:.2f},{:.2f},\n", first.kernel->name(), second.kernel->name(),
             problem.str(), first.candidate.config, second.candidate.config, measure_us(session, both, KernelRun{}),
             first.candidate.estimated_us + second.candidate.estimated_us, floor);

  // The first two million.
  const auto on_host = [&](const DeviceBuffer<std::byte>& from) {
    Tensor host(storage, {std::min<std::int64_t>(y_elements, 1 << 21)});
    CUDA_CHECK(cudaMemcpy(host.data(), from.data(), host.bytes(), cudaMemcpyDeviceToHost));
    return host.to_dtype(DType::f32);
  };
  const Tensor wanted = on_host(y_of_both);
  const SeparableTiling planned = plan_separable(problem, device).value();
  const double planned_us = estimate_separable_us(problem, planned, device);
  const char* const limit = std::getenv("LENSLET_BENCH_HOPELESS");
  for (const SeparableTiling& tiling : separable_tilings(problem, device)) {
    const double estimated_us = estimate_separable_us(problem, tiling, device);
    if (estimated_us > (limit == nullptr ? hopeless : std::atof(limit)) * planned_us) continue;
    candidate.config = tiling.str();
    const Prepared prepared(kernel, *posed, candidate, device);
    const Tensor inputs[] = {x_view, Tensor(), Tensor(), Tensor(), Tensor(), residual_view};
    CUDA_CHECK(cudaMemset(y.data(), 0xff, y.bytes()));
    const double us = measure_us(session, *prepared.bound, prepared.run(inputs, y_view));
    const Tensor got = on_host(y);
    double error = 0, most = 0;
    for (std::size_t i = 0; i < got.values<float>().size(); ++i) {
      const double a = got.values<float>()[i], b = wanted.values<float>()[i];
      const double difference = std::abs(a - b);
      error = std::max(error, std::isnan(difference) ? HUGE_VAL : difference);
      most = std::max(most, std::abs(b));
    }
    fmt::print("{}separable,\"{}\",{},{:.2f},{:.2f},{:.2f},{:.1e}\n", tiling == planned ? "*" : "", problem.str(),
               tiling.str(), us, estimated_us, floor, error / most);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace lenslet

int main(int argc, char** argv) {
  using namespace lenslet;
  return bench::run_batches("lenslet-bench-separable", argc, argv,
                            "algorithm,problem,config,us,estimated_us,floor_us,difference",
                            [](const cuda::Session& session, const Numerics& numerics, std::int64_t n) {
                              for (const SeparableLayer& layer : layers)
                                measure(session, stored(layer.problem(n), numerics.storage), numerics);
                            });
}
