#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>

#include "tests/allocations.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

class CpuOpRunner final : public OpRunner {
 public:
  DeviceKind device() const override { return DeviceKind::cpu; }
  std::vector<DeviceProfile> profiles(int threads) const override {
    std::vector<DeviceProfile> profiles;
    for (int count = 1; count <= threads; ++count) profiles.push_back(cpu_profile(count));
    return profiles;
  }
  std::unique_ptr<Block> block(std::size_t bytes, std::size_t alignment) const override {
    return std::make_unique<HostBlock>(bytes, alignment);
  }
  void run(const BoundKernel& bound, const Call& call, KernelRun run) const override {
    static std::array<ThreadPool, 3> pools{ThreadPool(1), ThreadPool(2), ThreadPool(3)};
    run.pool = &pools.at(static_cast<std::size_t>(call.device.units - 1));
    const AllocationCount allocations;
    bound.run(run);
    if (allocations.count() > 0)
      FAIL_CHECK(
          fmt::format("{} allocations in a run of {}{}", allocations.count(), call.problem.op().type(), call.str()));
  }
};

}  // namespace

const OpRunner& cpu_op_runner() {
  static const CpuOpRunner runner;
  return runner;
}

}  // namespace lenslet::test
