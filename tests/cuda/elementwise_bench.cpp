// lenslet-bench-cuda: how much of the device's own copy speed the elementwise kernel reaches. Both move count floats in
// and count floats out. Each is captured into a CUDA graph of many repetitions over several buffers, so that neither
// launch time nor a small working set left in L2 flatters it; replays alternate and the median is printed.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "lenslet/device.h"
#include "runtime/base/cuda/buffer.h"
#include "runtime/base/cuda/elementwise.h"
#include "runtime/base/cuda/stream.h"

namespace lenslet {
namespace {

constexpr int replays = 31;
constexpr int warm_up = 3;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double replay_ms(const cuda::GraphExec& graph, const cuda::Stream& stream) {
  cuda::Event start, stop;
  start.record(stream);
  graph.launch(stream);
  stop.record(stream);
  stop.synchronize();
  return static_cast<double>(stop.ms_since(start));
}

struct Row {
  std::string what;
  std::int64_t count = 0;
  double copy_gbs = 0, kernel_gbs = 0;
};

/// `x_offset`: floats by which the input is moved off its 16-byte boundary.
Row measure(const std::string& what, std::int64_t count, std::int64_t x_offset, const cuda::Stream& stream) {
  // Round-robin over enough buffers that a replay streams at least 1 GiB: far more than any L2 holds.
  const std::int64_t bytes = count * 4;
  const int pairs = static_cast<int>(std::clamp<std::int64_t>((std::int64_t{1} << 30) / (2 * bytes), 1, 64));
  const int repetitions = std::max(pairs, 8);
  const auto stride = static_cast<std::size_t>((count + 4 + 63) / 64 * 64);
  cuda::DeviceBuffer<float> x(stride * static_cast<std::size_t>(pairs)), y(stride * static_cast<std::size_t>(pairs));
  CUDA_CHECK(cudaMemsetAsync(x.data(), 0x3f, x.bytes(), stream.get()));
  CUDA_CHECK(cudaMemsetAsync(y.data(), 0, y.bytes(), stream.get()));
  auto in = [&](int i) { return x.data() + stride * static_cast<std::size_t>(i % pairs) + x_offset; };
  auto out = [&](int i) { return y.data() + stride * static_cast<std::size_t>(i % pairs); };
  const cuda::GraphExec copy(stream, [&] {
    for (int i = 0; i < repetitions; ++i)
      CUDA_CHECK(
          cudaMemcpyAsync(out(i), in(i), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream.get()));
  });
  const cuda::GraphExec kernel(stream, [&] {
    for (int i = 0; i < repetitions; ++i) cuda::clip_scale(in(i), out(i), count, 0.5f, 0, 6, stream.get());
  });
  std::vector<double> copy_ms, kernel_ms;
  for (int i = 0; i < warm_up + replays; ++i) {
    const double copied = replay_ms(copy, stream), ran = replay_ms(kernel, stream);
    if (i < warm_up) continue;
    copy_ms.push_back(copied);
    kernel_ms.push_back(ran);
  }
  const double gigabytes = 2.0 * static_cast<double>(bytes) * repetitions * 1e-9;
  return {what, count, gigabytes / (median(copy_ms) * 1e-3), gigabytes / (median(kernel_ms) * 1e-3)};
}

int main() {
  const DeviceReport report = query_devices();
  const auto device = std::find_if(report.devices.begin(), report.devices.end(),
                                   [](const DeviceInfo& info) { return info.id == "cuda:0"; });
  if (device == report.devices.end() || !device->usable) {
    fmt::print(stderr, "lenslet-bench-cuda: no usable CUDA device: {}\n",
               device == report.devices.end() ? report.cuda.reason : device->reason);
    return 1;
  }
  const cuda::Stream stream;
  std::vector<Row> rows;
  for (const std::int64_t count :
       {std::int64_t{1} << 20, std::int64_t{1} << 23, std::int64_t{1} << 26, std::int64_t{1} << 28})
    rows.push_back(measure("aligned", count, 0, stream));
  rows.push_back(measure("3 floats of tail", (std::int64_t{1} << 26) + 3, 0, stream));
  rows.push_back(measure("x misaligned by 4 bytes", std::int64_t{1} << 26, 1, stream));
  fmt::print(
      "{} ({}), driver {}, runtime {}; clip_scale against device-to-device copy, bytes read + written,\n"
      "CUDA-graph replays, median of {}\n",
      device->name, device->architecture, report.cuda.driver, report.cuda.runtime, replays);
  fmt::print("{:<24} {:>11} {:>10} {:>12} {:>14}\n", "case", "floats", "copy GB/s", "kernel GB/s", "share of copy");
  for (const Row& row : rows)
    fmt::print("{:<24} {:>11} {:>10.0f} {:>12.0f} {:>13.1f}%\n", row.what, row.count, row.copy_gbs, row.kernel_gbs,
               100 * row.kernel_gbs / row.copy_gbs);
  return 0;
}

}  // namespace
}  // namespace lenslet

int main() {
  try {
    return lenslet::main();
  } catch (const std::exception& error) {
    fmt::print(stderr, "lenslet-bench-cuda: {}\n", error.what());
    return 1;
  }
}
