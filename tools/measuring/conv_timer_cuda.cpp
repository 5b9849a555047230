// Compiled with CUDA only.
#include <algorithm>
#include <chrono>
#include <vector>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "lenslet/error.h"
#include "tools/measuring/conv_timer.h"

namespace lenslet::tool {
namespace {

using Clock = std::chrono::steady_clock;

class CudaConvTimer final : public ConvTimer {
 public:
  CudaConvTimer(int device, bool tf32)
      : current_(device), session_(device, tf32 ? cuda::Precision::tf32 : cuda::Precision::fp32) {}
  DeviceKind device() const override { return DeviceKind::cuda; }
  MachineRates rates() const override { return cuda_rates(session_.context().multiprocessors); }

  DevicePeak peak() override {
    constexpr std::size_t bytes = std::size_t{1} << 30;
    constexpr std::int64_t size = 8192;
    cuda::DeviceBuffer<std::byte> from(bytes), to(bytes);
    const auto zero = [&](void* data) { CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, session_.stream().get())); };
    zero(from.data());
    zero(to.data());
    DevicePeak peak{0, 0, "device-to-device copy of 1 GiB"};
    const double copy_us = least_us([&] {
      CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, session_.stream().get()));
    });
    peak.bytes_per_us = 2.0 * static_cast<double>(bytes) / copy_us;
    if (session_.context().cublas == nullptr)
      throw Error(ErrorKind::device, cuda::cublas_unavailable_reason() + "; it measures the arithmetic ceiling");
    // Drawn values: zeros let the device run at a higher clock.
    ConvProblem matrix;
    matrix.h = matrix.w = size;
    const ConvOperands operands(matrix);
    const cuda::DeviceBuffer<float> a = cuda::upload(operands.x.values<float>());
    const double gemm_us = least_us([&] {
      session_.context().cublas->gemm(size, size, size, {a.data(), size}, {a.data(), size},
                                      reinterpret_cast<float*>(to.data()), size);
    });
    peak.flops_per_us = 2.0 * size * size * size / gemm_us;
    peak.how += ", cuBLAS product of 8192^3";
    return peak;
  }

  ConvTime time(const ConvAlgorithm& algorithm, const ConvProblem& problem, const ConvOperands& operands,
                const ConvReference& reference, double seconds) override {
    const ConvProblem seen = algorithm.wants_padded() ? problem.with_explicit_padding() : problem;
    const auto elems = static_cast<std::size_t>(problem.n * problem.k * problem.p * problem.q);
    const cuda::DeviceBuffer<float> x = cuda::upload(operands.x_for(algorithm, problem).values<float>()),
                                    bias = cuda::upload(operands.bias.values<float>());
    cuda::DeviceBuffer<float> y(elems);
    cuda::DeviceBuffer<std::byte> workspace(algorithm.workspace_bytes(seen, 1));
    const auto filter = algorithm.prepare(seen, {operands.w.values<float>().data(), nullptr});
    CUDA_CHECK(cudaMemset(y.data(), 0xff, y.bytes()));  // NaN: an output that is not written shows
    CUDA_CHECK(cudaDeviceSynchronize());                // the session's stream does not wait for the one that copied
    const ConvRun run{.problem = seen,
                      .x = x.data(),
                      .filter = filter.get(),
                      .bias = problem.bias ? bias.data() : nullptr,
                      .y = y.data(),
                      .workspace = {workspace.data(), workspace.size()},
                      .cuda = &session_.context()};
    algorithm.run(run);
    session_.stream().synchronize();
    std::vector<float> result(elems);
    CUDA_CHECK(cudaMemcpy(result.data(), y.data(), y.bytes(), cudaMemcpyDeviceToHost));

    const int copies = problem.flops() < 2e10 ? 20 : 5;
    const cuda::GraphExec graph(session_.stream(), [&] {
      for (int i = 0; i < copies; ++i) algorithm.run(run);
    });
    for (int i = 0; i < 2; ++i) graph.launch(session_.stream());
    std::vector<double> samples;
    for (const auto begin = Clock::now();
         samples.size() < 7 || std::chrono::duration<double>(Clock::now() - begin).count() < seconds;)
      samples.push_back(device_us([&] { graph.launch(session_.stream()); }) / copies);
    ConvTime time = summarise(std::move(samples));
    time.error = reference.error(result.data(), algorithm.format());
    return time;
  }

 private:
  template <typename Work>
  double device_us(const Work& work) {
    start_.record(session_.stream());
    work();
    stop_.record(session_.stream());
    stop_.synchronize();
    return 1e3 * static_cast<double>(stop_.ms_since(start_));
  }

  // Of ten, after two that warm up: other load only slows it down.
  template <typename Work>
  double least_us(const Work& work) {
    double least = 1e30;
    for (int i = 0; i < 12; ++i) {
      const double us = device_us(work);
      if (i >= 2) least = std::min(least, us);
    }
    return least;
  }

  cuda::CurrentDevice current_;
  cuda::Session session_;
  cuda::Event start_, stop_;
};

}  // namespace

std::unique_ptr<ConvTimer> cuda_conv_timer(int device, bool tf32) {
  return std::make_unique<CudaConvTimer>(device, tf32);
}

}  // namespace lenslet::tool
