#pragma once
// Timing by CUDA graph replays. Builds with CUDA only.

#include "base/cuda/graph.h"
#include "tools/measuring/samples.h"

namespace lenslet::tool {

/// How many calls a graph shall hold at least, as ../shared/peers/conv_bench.py has it: replaying it costs the host
/// some microseconds.
constexpr int calls_a_graph(double flops) { return flops < 2e10 ? 20 : 5; }

/// Microseconds a call of what was recorded, which are `calls`. `seconds`: time to spend on samples, but at least 7 are
/// taken, after two replays that warm up.
Quantiles time_replays(const cuda::GraphRecorder& recorder, int calls, const cuda::Stream& stream, double seconds);

/// Microseconds that the device takes for what `queue` queues on the stream.
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
