#pragma once
// Runs a kernel once for the harness: on the CPU in lenslet-test-ops, on a CUDA device in lenslet-test-cuda-ops.
// Linking op_runner_main.cpp or its counterpart in tests/cuda selects one.

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
  int in_place = -1;  ///< the input that output 0 overwrites
  std::string str() const;
};

class OpRunner {
 public:
  virtual ~OpRunner() = default;
  virtual DeviceKind device() const = 0;
  /// The devices to plan for: CPUs with 1 to `threads` threads, or the GPU.
  virtual std::vector<DeviceProfile> profiles(int threads) const = 0;
  /// Memory for tensors: aligned to 64 bytes, on a device to 256, or to `alignment` if that is larger.
  virtual std::unique_ptr<Block> block(std::size_t bytes, std::size_t alignment = 64) const = 0;
  /// For an input or an output, aligned no better than an app's may be.
  virtual std::unique_ptr<Block> value_block(std::size_t bytes) const { return block(bytes); }
  /// Runs what `call` bound, and waits for the end.
  virtual void run(const BoundKernel& bound, const Call& call, KernelRun run) const = 0;
};

/// Whether a candidate's blob has the same bytes when constants that run() reads, too, are others: plans share blobs by
/// their key and by the constants that it does not read.
bool key_decides_blob(const Kernel& kernel, const Problem& problem, const Candidate& candidate);

/// The runner that this executable tests.
const OpRunner& op_runner();
const OpRunner& cpu_op_runner();

/// For a tensor in `format`, including padded blocks and halo.
std::size_t stored_bytes(const TensorType& type, const Format& format);
bool contains(const std::vector<int>& list, std::size_t value);
std::vector<InputInfo> infos_of(const std::vector<Tensor>& inputs, const std::vector<int>& constant);

/// Calls f(call) for every candidate of `kernel` for `problem` and the runner's profiles, into separate memory and over
/// every input that it may overwrite. Fails the current check if an offer contradicts itself, or if a damaged
/// configuration can be bound. Returns the refusals.
std::vector<std::string> for_each_call(const OpRunner& runner, const Problem& problem, const Kernel& kernel,
                                       int threads, const std::function<void(const Call&)>& f,
                                       const Numerics& numerics = {});

/// The outputs for `inputs`, both in format nchw: binds and packs as a plan does, then runs twice over the same
/// poisoned memory. Fails the current check if anything else than outputs and workspace is written, or if bits differ.
std::vector<Tensor> run_between_guards(const OpRunner& runner, const Call& call, std::span<const Tensor> inputs,
                                       const std::string& where);

}  // namespace lenslet::test
