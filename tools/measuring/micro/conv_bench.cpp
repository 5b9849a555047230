// Every convolution algorithm on the layers of known networks, with its estimate beside the measured time, so that the
// rule of choose.cpp can be judged. Names: conv/NETWORK/PROBLEM/ALGORITHM/threads:T. The Pad step that an algorithm
// wants is not in its time (it is in its estimate).
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "lenslet/tensor.h"
#include "ops/conv/choose.h"
#include "tools/measuring/micro/layers.h"

namespace lenslet::bench {
namespace {

Tensor random_tensor(const Shape& shape) {
  Tensor tensor(DType::f32, shape);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& v : tensor.values<float>()) v = uniform(random);
  return tensor;
}

void run_layer(benchmark::State& state, const ConvAlgorithm& algorithm, const ConvProblem& problem, int threads) {
  const ConvProblem seen = algorithm.wants_padded() ? problem.with_explicit_padding() : problem;
  const Tensor x = random_tensor({seen.n, seen.c, seen.h, seen.w}), bias = random_tensor({seen.k});
  const Tensor w = random_tensor({seen.k, seen.group_c(), seen.r, seen.s});
  Tensor y(DType::f32, {seen.n, seen.k, seen.p, seen.q});
  const std::size_t bytes = algorithm.workspace_bytes(seen, threads);
  Tensor workspace(DType::u8, {static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1))});
  const auto filter = algorithm.prepare(seen, {w.values<float>().data(), nullptr});
  ThreadPool pool(threads);
  const ConvRun run{.problem = seen,
                    .x = x.values<float>().data(),
                    .filter = filter.get(),
                    .bias = bias.values<float>().data(),
                    .residual = nullptr,
                    .y = y.values<float>().data(),
                    .workspace = {static_cast<std::byte*>(workspace.data()), bytes},
                    .pool = &pool};
  for (auto _ : state) algorithm.run(run);
  state.counters["GFLOP/s"] = benchmark::Counter(problem.flops() * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["estimate_us"] = algorithm.estimate_us(problem, cpu_rates(threads));
}

}  // namespace

void register_convolutions() {
  for (const int threads : {1, 2})
    for (const Layer& layer : layers())
      for (const ConvAlgorithm* algorithm : conv_algorithms(DeviceKind::cpu)) {
        if (algorithm->refuse(layer.problem)) continue;
        std::string words = layer.problem.str();
        std::replace(words.begin(), words.end(), ' ', '_');
        benchmark::RegisterBenchmark(
            fmt::format("conv/{}/{}/{}/threads:{}", layer.network, words, algorithm->name(), threads).c_str(),
            [=](benchmark::State& state) { run_layer(state, *algorithm, layer.problem, threads); })
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
      }
}

}  // namespace lenslet::bench
