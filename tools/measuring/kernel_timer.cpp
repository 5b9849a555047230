#include "tools/measuring/kernel_timer.h"

#include <algorithm>

#include "oracle/draw.h"

namespace lenslet::tool {
namespace {

class CpuTimer final : public KernelTimer {
 public:
  explicit CpuTimer(int threads) : pool_(threads), device_(cpu_profile(pool_.threads())) {}
  const DeviceProfile& device() const override { return device_; }
  Peak peak(const Numerics& numerics) override {
    Peak peak = cpu_peak(pool_.threads());
    if (numerics.multiply == Numerics::Multiply::bf16)
      peak.flops_per_us = std::max(peak.flops_per_us, bf16_peak(pool_.threads(), false));
    return peak;
  }

  Measured measure(const Kernel& kernel, const Problem& problem, const Candidate& candidate,
                   std::span<const Tensor> inputs, double seconds) override {
    BoundCall call(kernel, problem, candidate, device_, inputs);
    const Stopwatch first;
    call.run(pool_);
    const Quantiles us = quantiles(sample(seconds, least_samples(first.seconds()), [&] {
      const Stopwatch watch;
      call.run(pool_);
      return watch.us();
    }));
    return {us, std::move(call.outputs)};
  }

 private:
  ThreadPool pool_;
  DeviceProfile device_;
};

}  // namespace

std::vector<Tensor> drawn_inputs(const Problem& problem) {
  oracle::FastEngine engine(1);
  std::vector<Tensor> tensors;
  for (const InputInfo& input : problem.inputs()) {
    Tensor& tensor = tensors.emplace_back();
    if (!input.present) continue;
    if (input.constant != nullptr) {
      tensor = *input.constant;
      continue;
    }
    tensor = Tensor(input.type.dtype, input.type.shape);
    oracle::draw(tensor, engine);
  }
  return tensors;
}

BoundCall::BoundCall(const Kernel& kernel, const Problem& problem, const Candidate& candidate,
                     const DeviceProfile& device, std::span<const Tensor> values)
    : bound(kernel.bind({problem, candidate, device})) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool read = problem.inputs()[i].constant == nullptr || (candidate.reads & input_bit(i)) != 0;
    const bool moves = read && !values[i].empty() && values[i].format() != candidate.inputs[i];
    inputs.push_back(moves ? values[i].to_format(candidate.inputs[i]) : read ? values[i] : Tensor());
  }
  for (std::size_t i = 0; i < problem.outputs().size(); ++i)
    outputs.emplace_back(problem.outputs()[i].dtype, problem.output_shape(i), candidate.outputs[i]);
  blob = prepared_blob(kernel, problem, candidate);
  workspace_bytes = bound->workspace_bytes();
  if (kernel.device() != DeviceKind::cpu) return;
  for (Tensor& output : outputs) std::ranges::fill(bytes_of(output), std::byte{0xff});
  workspace_ = tensor_of_bytes(workspace_bytes);
}

void BoundCall::run(ThreadPool& pool) {
  bound->run({.inputs = inputs,
              .outputs = outputs,
              .workspace = bytes_of(workspace_),
              .blob = static_cast<const std::byte*>(blob.data()),
              .pool = &pool});
}

std::unique_ptr<KernelTimer> cpu_timer(int threads) { return std::make_unique<CpuTimer>(threads); }

}  // namespace lenslet::tool
