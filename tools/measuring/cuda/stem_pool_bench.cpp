// lenslet-bench-stem-pool [PRECISION [BATCH ...]]: first layers with the following 3x3 max pooling, as CSV: stem and
// pool as two kernels, and fused in stem, with walks of all lengths. plan_walks() in ops/conv/cuda/stem.cu is fitted to
// it. Each row is a CUDA graph of many runs; a row with * is the planner's choice. x is float32, like a network's
// input. floor_us: the bytes at 4.3 TB/s.

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "tools/measuring/cuda/command_line.h"
#include "tools/measuring/cuda/config_timer.h"

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
  const auto run = [&](TimedConv& conv, const ConvProblem& problem, const std::string& config) {
    const Candidate& offered = conv.offered().value();
    fmt::print("{}{},{},{},{},{:.2f},{:.2f},{:.2f}\n", config == offered.config ? "*" : "", layer.network,
               to_string(problem.storage), n, config, conv.us(config), offered.estimated_us, problem.bytes() / 4.3e6);
    std::fflush(stdout);
  };
  ConvProblem apart = p;
  apart.max_pool = {};
  TimedConv alone(session, "stem", apart, numerics), with_maxima(session, "stem", p, numerics);
  run(alone, apart, alone.offered().value().config);
  const std::string planned = with_maxima.offered().value().config;
  run(with_maxima, p, planned);
  const bool wgmma = planned.find("wgmma") != std::string::npos;
  for (const std::int64_t tiles : {1, 2, 3, 4, 5, 7, 14}) {
    const std::string config =
        fmt::format("{} tiles={}{}", planned.substr(0, planned.find(" tiles=")), tiles, wgmma ? " by=wgmma" : "");
    if (config != planned) run(with_maxima, p, config);
  }
}

}  // namespace
}  // namespace lenslet

int main(int argc, char** argv) {
  using namespace lenslet;
  return bench::run_batches("lenslet-bench-stem-pool", argc, argv, "network,y,n,config,us,estimated_us,floor_us",
                            [](const cuda::Session& session, const Numerics& numerics, std::int64_t n) {
                              for (const Layer& layer : layers) measure(session, layer, numerics, n);
                            });
}
