#pragma once
// How the benches that cost models are fitted to time one way to cut a problem.

#include <algorithm>
#include <random>
#include <vector>

#include "base/cuda/graph.h"
#include "base/cuda/session.h"
#include "ops/core/kernel.h"

namespace lenslet::bench {

/// Median time of one run in us; run.cuda is the session's.
inline double measure_us(const cuda::Session& session, const BoundKernel& bound, KernelRun run) {
  constexpr int runs_a_graph = 20, replays = 5;
  cuda::GraphRecorder recorder;
  cuda::Context context = session.context();
  context.recorder = &recorder;
  run.cuda = &context;
  for (int i = 0; i < runs_a_graph; ++i) bound.run(run);
  const cuda::GraphExec graph(recorder);
  std::vector<double> us;
  for (int i = 0; i < replays + 1; ++i) {
    cuda::Event start, stop;
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
inline Tensor drawn(const Shape& shape) {
  static std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Tensor tensor(DType::f32, shape);
  for (float& value : tensor.values<float>()) value = uniform(random);
  return tensor;
}

}  // namespace lenslet::bench
