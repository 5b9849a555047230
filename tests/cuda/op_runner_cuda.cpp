// lenslet-test-cuda-ops runs the cases of tests/ops on the device: the same operators, the same oracle.

#include <doctest/doctest.h>

#include <algorithm>

#include "base/cuda/buffer.h"
#include "base/cuda/session.h"
#include "ops/core/fault.h"
#include "tests/cuda/device_block.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

const cuda::Session& session(bool with_cublas) {
  static const cuda::Session plain(0);
  if (!with_cublas) return plain;  // candidates that need no cuBLAS get none
  static const cuda::Session with(0, true);
  return with;
}

class CudaOpRunner final : public OpRunner {
 public:
  DeviceKind device() const override { return DeviceKind::cuda; }
  std::vector<DeviceProfile> profiles(int) const override { return {cuda::device_profile(0)}; }
  std::unique_ptr<Block> block(std::size_t bytes, std::size_t alignment) const override {
    REQUIRE(alignment <= 256);
    return std::make_unique<DeviceBlock>(bytes);
  }
  void run(const BoundKernel& bound, const Call& call, KernelRun run) const override {
    const cuda::Session& on = session(call.candidate.needs_cublas);
    static cuda::PinnedBuffer<int> fault(fault_words);
    std::fill_n(fault.data(), fault_words, 0);
    cuda::Context context = on.context();
    if (!bound.fault().empty()) context.fault = fault.data();
    run.cuda = &context;
    bound.run(run);
    on.stream().synchronize();
    if (fault.data()[0] != 0)
      throw Error(ErrorKind::invalid_argument, fault_of(bound, FaultWords(fault.data(), fault_words)));
  }
};

}  // namespace

const OpRunner& op_runner() {
  static const CudaOpRunner runner;
  return runner;
}

}  // namespace lenslet::test
