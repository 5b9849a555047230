#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/cuda/buffer.h"
#include "base/cuda/cublas.h"
#include "base/cuda/graph.h"
#include "lenslet/device.h"
#include "tools/measuring/cuda/command_line.h"
#include "tools/measuring/cuda/memory_bench.h"
#include "tools/measuring/samples.h"

namespace lenslet::bench {
namespace {

constexpr int replays = 31;
constexpr int warm_up = 3;
constexpr std::size_t streamed_bytes = std::size_t{1} << 30;  // by one replay: far more than any L2

double replay_ms(const cuda::GraphExec& graph, const cuda::Stream& stream) {
  cuda::Event start, stop;
  start.record(stream);
  graph.launch(stream);
  stop.record(stream);
  stop.synchronize();
  return static_cast<double>(stop.ms_since(start));
}

void print(const char* title, const std::vector<Row>& rows) {
  fmt::print("\n{:<52} {:>10} {:>10} {:>10} {:>12} {:>14}\n", title, "MB", "us", "copy GB/s", "kernel GB/s",
             "share of copy");
  for (const Row& row : rows)
    fmt::print("{:<52} {:>10.2f} {:>10.2f} {:>10.0f} {:>12.0f} {:>13.1f}%\n", row.what, row.megabytes, row.microseconds,
               row.copy_gbs, row.kernel_gbs, 100 * row.kernel_gbs / row.copy_gbs);
  std::fflush(stdout);  // keeps the results if a later part fails
}

struct Part {
  std::string_view name;
  const char* title;
  std::vector<Row> (*rows)(cuda::Session& session);
};
constexpr Part parts[] = {{"elementwise", "elementwise", elementwise},
                          {"halves", "in 16 bits", halves},
                          {"movement", "movement", movement},
                          {"photos", "photos (loaded: host's clock, against pinned uploads)", photos},
                          {"reduction", "pooling, softmax, reductions", reduction},
                          {"sparse", "sparse values", sparse}};

/// `wanted`: names of parts; empty: all.
void run_all(std::span<const std::string_view> wanted) {
  for (const std::string_view name : wanted)
    if (std::none_of(std::begin(parts), std::end(parts), [&](const Part& part) { return part.name == name; }))
      throw std::invalid_argument(fmt::format("there is no part {}", name));
  const DeviceReport report = query_devices();
  const auto device = std::find_if(report.devices.begin(), report.devices.end(),
                                   [](const DeviceInfo& info) { return info.id == "cuda:0"; });
  if (device == report.devices.end() || !device->usable)
    throw std::runtime_error("no usable CUDA device: " +
                             (device == report.devices.end() ? report.cuda.reason : device->reason));
  cuda::Session session(0, cuda::cublas_unavailable_reason(0).empty());  // for DeformConv's products
  fmt::print(
      "{} ({}), driver {}, runtime {}; bytes read + written, against device-to-device copies of as many,\n"
      "CUDA-graph replays, median of {}\n",
      device->name, device->architecture, report.cuda.driver, report.cuda.runtime, replays);
  for (const Part& part : parts)
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), part.name) != wanted.end())
      print(part.title, part.rows(session));
}

}  // namespace

Row measure(cuda::Session& session, const std::string& what, std::size_t from_bytes, std::size_t to_bytes,
            const Launch& launch, bool few_bytes) {
  const std::size_t moved = from_bytes + to_bytes;
  const std::size_t pairs = few_bytes ? 1 : std::clamp<std::size_t>(streamed_bytes / moved, 1, 64);
  const std::size_t calls = few_bytes ? 200 : std::max<std::size_t>(pairs, 8);
  // The copy moves as many bytes between the same buffers.
  const std::size_t copied = moved / 2;
  const auto stride = [copied](std::size_t bytes) { return (std::max(bytes, copied) + 255) / 256 * 256; };
  cuda::DeviceBuffer<std::byte> from(stride(from_bytes) * pairs), to(stride(to_bytes) * pairs);
  const cuda::Stream& stream = session.stream();
  CUDA_CHECK(cudaMemsetAsync(from.data(), 0x3f, from.bytes(), stream.get()));
  CUDA_CHECK(cudaMemsetAsync(to.data(), 0, to.bytes(), stream.get()));
  const auto each = [&](const auto& one) {
    for (std::size_t i = 0; i < calls; ++i)
      one(from.data() + i % pairs * stride(from_bytes), to.data() + i % pairs * stride(to_bytes));
  };
  cuda::GraphRecorder copies, kernels;
  copies.capture(stream, [&] {
    each([&](const std::byte* source, std::byte* target) {
      CUDA_CHECK(cudaMemcpyAsync(target, source, copied, cudaMemcpyDeviceToDevice, stream.get()));
    });
  });
  session.record(kernels, [&](const cuda::Context& context) {
    each([&](const std::byte* source, std::byte* target) { launch(context, source, target); });
  });
  const cuda::GraphExec copy(copies), kernel(kernels);
  std::vector<double> copy_ms, kernel_ms;
  for (int i = 0; i < warm_up + replays; ++i) {
    const double copy_took = replay_ms(copy, stream), kernel_took = replay_ms(kernel, stream);
    if (i < warm_up) continue;
    copy_ms.push_back(copy_took);
    kernel_ms.push_back(kernel_took);
  }
  const double seconds = tool::quantiles(kernel_ms).median * 1e-3 / static_cast<double>(calls);
  const double copy_seconds = tool::quantiles(copy_ms).median * 1e-3 / static_cast<double>(calls);
  const auto bytes = static_cast<double>(moved);
  return {what, bytes * 1e-6, seconds * 1e6, bytes / copy_seconds * 1e-9, bytes / seconds * 1e-9};
}

}  // namespace lenslet::bench

int main(int argc, char** argv) {
  return lenslet::bench::run("lenslet-bench-cuda", argc, argv, lenslet::bench::run_all);
}
