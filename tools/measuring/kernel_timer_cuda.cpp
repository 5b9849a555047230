// Compiled with CUDA only.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "lenslet/error.h"
#include "oracle/draw.h"
#include "tools/measuring/kernel_timer.h"
#include "tools/measuring/replays.h"

namespace lenslet::tool {
namespace {

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

/// A call on the device: several equal sets of inputs, blob and outputs, and one workspace.
class DeviceCall {
 public:
  /// All sets have at least `total` bytes together, with at most 1024 sets.
  DeviceCall(const BoundCall& call, std::size_t total, const cuda::Stream& stream)
      : call_(call), workspace_(call.workspace_bytes) {
    std::size_t bytes = round_up(call.blob.bytes());
    for (const auto* tensors : {&call.inputs, &call.outputs})
      for (const Tensor& tensor : *tensors) bytes += round_up(tensor.bytes());
    sets_.resize(std::clamp<std::size_t>(total / std::max<std::size_t>(bytes, 1) + 1, 1, 1024));
    memory_ = cuda::DeviceBuffer<std::byte>(std::max<std::size_t>(bytes * sets_.size(), 1));
    CUDA_CHECK(cudaMemset(memory_.data(), 0xff, bytes));  // NaN reveals unwritten outputs
    for (std::size_t s = 0; s < sets_.size(); ++s) place(sets_[s], memory_.data() + s * bytes, s == 0);
    for (std::size_t s = 1; s < sets_.size(); ++s)
      CUDA_CHECK(
          cudaMemcpyAsync(memory_.data() + s * bytes, memory_.data(), bytes, cudaMemcpyDeviceToDevice, stream.get()));
  }

  int sets() const { return static_cast<int>(sets_.size()); }

  /// Queues or records the call on the context's stream; the sets take turns.
  void run(const cuda::Context& context, int number) {
    Set& set = sets_[static_cast<std::size_t>(number) % sets_.size()];
    call_.bound->run({.inputs = set.inputs,
                      .outputs = set.outputs,
                      .workspace = {workspace_.data(), workspace_.bytes()},
                      .blob = set.blob,
                      .cuda = &context});
  }

  /// Outputs of the first set, on the host. The device must be idle.
  std::vector<Tensor> outputs() const {
    std::vector<Tensor> results;
    for (const Tensor& output : sets_[0].outputs) {
      Tensor& host = results.emplace_back(output.dtype(), output.shape(), output.format());
      CUDA_CHECK(cudaMemcpy(host.data(), output.data(), host.bytes(), cudaMemcpyDeviceToHost));
    }
    return results;
  }

 private:
  struct Set {
    std::vector<Tensor> inputs, outputs;
    const std::byte* blob = nullptr;
  };

  void place(Set& set, std::byte* next, bool upload) const {
    const auto put = [&](const Tensor& host, bool with_values) {
      if (host.empty()) return Tensor();
      std::byte* const data = std::exchange(next, next + round_up(host.bytes()));
      if (with_values) cuda::copy_to_device(data, host.data(), host.bytes());
      return Tensor::view(host.dtype(), host.shape(), data, host.format());
    };
    for (const Tensor& input : call_.inputs) set.inputs.push_back(put(input, upload));
    set.blob = static_cast<const std::byte*>(put(call_.blob, upload).data());
    for (const Tensor& output : call_.outputs) set.outputs.push_back(put(output, false));
  }

  const BoundCall& call_;
  cuda::DeviceBuffer<std::byte> memory_, workspace_;
  std::vector<Set> sets_;
};

class CudaTimer final : public KernelTimer {
 public:
  CudaTimer(int device, Buffers buffers)
      : buffers_(buffers),
        current_(device),
        device_(cuda::device_profile(device)),
        session_(device, device_.cublas_reason.empty()) {}
  const DeviceProfile& device() const override { return device_; }

  Peak peak(const Numerics& numerics) override {
    constexpr std::size_t bytes = std::size_t{1} << 30;
    constexpr std::int64_t size = 8192;
    if (session_.context().cublas == nullptr)
      throw Error(ErrorKind::device, fmt::format("{}; it measures the arithmetic ceiling", device_.cublas_reason));
    cuda::DeviceBuffer<std::byte> from(bytes), to(bytes);
    // Random: neither compressible nor zero.
    Tensor matrix(numerics.storage, {size, size});
    oracle::FastEngine engine(1);
    oracle::draw(matrix, engine);
    for (std::size_t at = 0; at < bytes; at += matrix.bytes())
      cuda::copy_to_device(from.data() + at, matrix.data(), matrix.bytes());
    const double copy_us = least_us([&] {
      CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, session_.stream().get()));
    });
    const auto* a = reinterpret_cast<const float*>(from.data());
    const cuda::Cublas& cublas = *session_.context().cublas;
    const double gemm_us = least_us([&] {
      if (numerics.storage == DType::f32)
        cublas.gemm(size, size, size, {a, size}, {a, size}, reinterpret_cast<float*>(to.data()), size, 0, 1, 0,
                    numerics.multiply);
      else
        cublas.gemm_halves(size, size, size, from.data(), from.data(), to.data(), numerics.storage);
    });
    return {.flops_per_us = 2.0 * size * size * size / gemm_us,
            .bytes_per_us = 2.0 * static_cast<double>(bytes) / copy_us,
            .how = fmt::format("device-to-device copy of 1 GiB, cuBLAS product of 8192^3 in {}", to_string(numerics))};
  }

  Measured measure(const Kernel& kernel, const Problem& problem, const Candidate& candidate,
                   std::span<const Tensor> inputs, double seconds) override {
    const BoundCall bound(kernel, problem, candidate, device_, inputs);
    DeviceCall call(bound, buffers_ == Buffers::rotating ? 2 * device_.l2_bytes : 0, session_.stream());
    call.run(session_.context(), 0);
    session_.stream().synchronize();
    std::vector<Tensor> outputs = call.outputs();
    const int calls = std::max(call.sets(), calls_a_graph(problem.op().flops(problem.inputs(), problem.outputs())));
    cuda::GraphRecorder recorder;
    session_.record(recorder, [&](const cuda::Context& context) {
      for (int i = 0; i < calls; ++i) call.run(context, i);
    });
    return {time_replays(recorder, calls, session_.stream(), seconds), std::move(outputs)};
  }

 private:
  // Best of ten after two warm-up runs: other load only slows it down.
  template <typename Queue>
  double least_us(const Queue& queue) {
    for (int i = 0; i < 2; ++i) queue();
    const std::vector<double> us = sample(0, 10, [&] { return device_us(session_.stream(), queue); });
    return *std::min_element(us.begin(), us.end());
  }

  Buffers buffers_;
  cuda::CurrentDevice current_;
  DeviceProfile device_;
  cuda::Session session_;
};

}  // namespace

Quantiles time_replays(const cuda::GraphRecorder& recorder, int calls, const cuda::Stream& stream, double seconds) {
  const cuda::GraphExec graph(recorder);
  const auto replay = [&] { graph.launch(stream); };
  for (int i = 0; i < 2; ++i) replay();
  return quantiles(sample(seconds, 7, [&] { return device_us(stream, replay) / calls; }));
}

std::unique_ptr<KernelTimer> cuda_timer(int device, Buffers buffers) {
  return std::make_unique<CudaTimer>(device, buffers);
}

}  // namespace lenslet::tool
