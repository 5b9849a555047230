#pragma once
// How the harness runs a kernel once: on the CPU in lenslet-test-ops, on a CUDA device in lenslet-test-cuda-ops. Which
// one is decided by linking op_runner_main.cpp or its twin in tests/cuda.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/core/kernel.h"
#include "tests/ops/block.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {

/// One way in which a plan may call an operator.
struct Call {
  const Problem& problem;
  const Kernel& kernel;
  const Candidate& candidate;
  const DeviceProfile& device;
  int in_place = -1;  ///< the input that output 0 is written over
  std::string str() const;
};

class OpRunner {
 public:
  virtual ~OpRunner() = default;
  virtual DeviceKind device() const = 0;
  /// What there is to plan for: CPUs with 1 to `threads` threads, or the device.
  virtual std::vector<DeviceProfile> profiles(int threads) const = 0;
  /// Memory for tensors: aligned to 64 bytes, on a device to 256, or to `alignment` if that is more.
  virtual std::unique_ptr<Block> block(std::size_t bytes, std::size_t alignment = 64) const = 0;
  /// Of an input or an output, aligned no better than an app's may be.
  virtual std::unique_ptr<Block> value_block(std::size_t bytes) const { return block(bytes); }
  /// Runs what `call` bound, and waits for it.
  virtual void run(const BoundKernel& bound, const Call& call, KernelRun run) const = 0;
};

/// The runner that this executable tests.
const OpRunner& op_runner();
const OpRunner& cpu_op_runner();

/// Of a tensor in `format`, padded blocks and halo included.
std::size_t stored_bytes(const TensorType& type, const Format& format);
bool contains(const std::vector<int>& list, std::size_t value);
std::vector<InputInfo> infos_of(const std::vector<Tensor>& inputs, const std::vector<int>& constant);

/// f(call) for every candidate that `kernel` offers for `problem` to the runner's profiles, into memory of its own and
/// over every input that it may be written over. Fails the current check when an offer contradicts itself, or when a
/// damaged configuration is bound. The refusals, if any.
std::vector<std::string> for_each_call(const OpRunner& runner, const Problem& problem, const Kernel& kernel,
                                       int threads, const std::function<void(const Call&)>& f,
                                       const Numerics& numerics = {});

/// The outputs, format nchw, of `inputs`, format nchw: binds and prepares as a plan does, then runs twice over the same
/// poisoned memory. Fails the current check when anything but the outputs and the workspace is written, or when the
/// bits do not repeat.
std::vector<Tensor> run_between_guards(const OpRunner& runner, const Call& call, std::span<const Tensor> inputs,
                                       const std::string& where);

}  // namespace lenslet::test
