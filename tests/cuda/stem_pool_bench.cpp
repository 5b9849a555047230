// lenslet-bench-stem-pool [PRECISION [BATCH ...]]: first layers with the 3x3 maxima behind them, as CSV: by stem and
// pool one after the other, and by stem with the maxima, with walks of all lengths. What plan_walks() in
// ops/conv/cuda/stem.cu is fitted to. Each row is a CUDA graph of many runs; one that starts with * is what the planner
// takes. x is float32, as a network's input comes. floor_us: the bytes at 4.3 TB/s.

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "ops/conv/conv.h"
#include "tests/cuda/bench_batches.h"
#include "tests/cuda/cut_timer.h"

namespace lenslet {
namespace {

using namespace bench;
using namespace cuda;

struct Layer {
  const char* network;
  std::int64_t k, window, pad;
  std::int8_t pool_pad, pool_end;
  ConvProblem problem(std::int64_t n, DType storage) const {
    ConvProblem p =
        resolve_conv({n, 3, 224, 224}, {k, 3, window, window}, {.stride = {2, 2}, .pads = {pad, pad, pad, pad}});
    p.bias = true;
    p.activation = {Activation::Kind::relu, 0, 0};
    p.storage = storage;
    p.max_pool = {3, 2, pool_pad, pool_pad, pool_end, pool_end};
    return p;
  }
};
constexpr Layer layers[] = {{"resnet", 64, 7, 3, 1, 1}, {"squeezenet", 64, 3, 0, 0, 0}, {"shufflenet", 24, 3, 1, 1, 1}};

void measure(const Session& session, const Layer& layer, const Numerics& numerics, std::int64_t n) {
  const ConvProblem p = layer.problem(n, numerics.storage);
  const DeviceProfile device = device_profile(0);
  const Target target{.device = device, .numerics = numerics};
  const Tensor filter = drawn({p.k, p.c, p.r, p.s}), bias_values = drawn({p.k}), image = drawn({1, p.c, p.h, p.w});
  std::vector<float> images;
  for (std::int64_t i = 0; i < n; ++i)
    images.insert(images.end(), image.values<float>().begin(), image.values<float>().end());
  const DeviceBuffer<float> x = upload(images), bias = upload(bias_values.values<float>());
  const Kernel& stem = *find_kernel("Conv", DeviceKind::cuda, "stem");
  const auto run = [&](const ConvProblem& problem, const std::string& config) {
    const auto posed = pose(problem, filter);
    const Offer offer = stem.offer(*posed, target);
    if (!offer.refusal.empty()) throw Error(ErrorKind::internal, offer.refusal);
    Candidate candidate = offer.candidates.at(0);
    const std::string planned = candidate.config;
    if (!config.empty()) candidate.config = config;
    std::vector<std::byte> host(stem.blob(*posed, candidate).value().bytes);
    stem.prepare(*posed, candidate, host);
    const DeviceBuffer<std::byte> blob = upload(host);
    const Shape shape{problem.n, problem.k, problem.stored_p(), problem.stored_q()};
    DeviceBuffer<std::byte> y(static_cast<std::size_t>(shape.elems()) * dtype_bytes(problem.storage));
    const Tensor inputs[] = {
        Tensor::view(DType::f32, {problem.n, problem.c, problem.h, problem.w}, const_cast<float*>(x.data())), Tensor(),
        Tensor::view(DType::f32, {problem.k}, const_cast<float*>(bias.data())), Tensor()};
    Tensor outputs[] = {Tensor::view(problem.storage, shape, y.data(), formats::nhwc)};
    const auto bound = stem.bind({*posed, candidate, device});
    const double us =
        measure_us(session, *bound, {.inputs = inputs, .outputs = outputs, .workspace = {}, .blob = blob.data()});
    fmt::print("{}{},{},{},{},{:.2f},{:.2f},{:.2f}\n", candidate.config == planned ? "*" : "", layer.network,
               to_string(problem.storage), n, candidate.config, us, offer.candidates[0].estimated_us,
               problem.bytes() / 4.3e6);
    std::fflush(stdout);
    return candidate.config;
  };
  ConvProblem apart = p;
  apart.max_pool = {};
  run(apart, "");
  const std::string planned = run(p, "");
  const bool wgmma = planned.find("wgmma") != std::string::npos;
  for (const std::int64_t tiles : {1, 2, 3, 4, 5, 7, 14}) {
    const std::string config =
        fmt::format("{} tiles={}{}", planned.substr(0, planned.find(" tiles=")), tiles, wgmma ? " by=wgmma" : "");
    if (config != planned) run(p, config);
  }
}

}  // namespace
}  // namespace lenslet

int main(int argc, char** argv) {
  using namespace lenslet;
  return bench_batches(argc, argv, "lenslet-bench-stem-pool", "network,y,n,config,us,estimated_us,floor_us",
                       [](const cuda::Session& session, const Numerics& numerics, std::int64_t n) {
                         for (const Layer& layer : layers) measure(session, layer, numerics, n);
                       });
}
