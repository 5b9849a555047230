#pragma once
// Timing by CUDA graph replays. Builds with CUDA only.

#include "base/cuda/graph.h"
#include "tools/measuring/samples.h"

namespace lenslet::tool {

/// Minimum number of calls in a graph, as in ../shared/peers/conv_bench.py: a replay costs the host some microseconds.
constexpr int calls_a_graph(double flops) { return flops < 2e10 ? 20 : 5; }

/// Microseconds of one of the `calls` recorded calls. `seconds`: time for samples; at least 7 are taken, after two
/// warm-up replays.
Quantiles time_replays(const cuda::GraphRecorder& recorder, int calls, const cuda::Stream& stream, double seconds);

/// Device time in microseconds of what `queue` queues on the stream.
template <typename Queue>
double device_us(const cuda::Stream& stream, const Queue& queue) {
  cuda::Event start, stop;
  start.record(stream);
  queue();
  stop.record(stream);
  stop.synchronize();
  return 1e3 * static_cast<double>(stop.ms_since(start));
}

}  // namespace lenslet::tool
