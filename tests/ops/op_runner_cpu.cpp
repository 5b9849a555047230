#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/core/row_kernel.h"
#include "tests/allocations.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

/// Floats between two pixels; there are none after the last one.
std::int64_t padding_between(const Tensor& tensor) {
  return std::max<std::int64_t>(0, tensor.format().pixel_pitch - tensor.shape()[1]);
}

/// Computes the output `count` rows at a time, from copies of only the rows that each call reads.
std::vector<float> by_rows(const RowKernel& kernel, const KernelRun& run, std::int64_t at_once) {
  const float poison = std::bit_cast<float>(~std::uint32_t{0});  // as in Block
  const RowShape x = kernel.x_shape(), y = kernel.y_shape();
  std::vector<float> all;
  for (std::int64_t image = 0; image < y.images; ++image)
    for (std::int64_t begin = 0; begin < y.rows; begin += at_once) {
      const Rows rows{begin, std::min(begin + at_once, y.rows)}, reads = kernel.reads(rows);
      REQUIRE((0 <= reads.begin && reads.begin <= reads.end && reads.end <= x.rows));
      const float* const from = run.in<float>(kernel.row_input()) + (image * x.rows + reads.begin) * x.row_floats;
      const std::int64_t gap = x.row_floats == 0 ? 0 : padding_between(run.inputs[kernel.row_input()]);
      const std::vector<float> read(from, from + std::max<std::int64_t>(0, reads.count() * x.row_floats - gap));
      std::vector<float> made(static_cast<std::size_t>(rows.count() * y.row_floats), poison);
      KernelRun call = run;
      call.pool = nullptr;
      call.workspace = {};
      kernel.run_rows(call,
                      {image, rows, {read.data(), reads.begin, x.row_floats}, {made.data(), begin, y.row_floats}});
      all.insert(all.end(), made.begin(), made.end());
    }
  return all;
}

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
  // As aligned as malloc() and NumPy, but not to 32 bytes (runtime/exec/movable_ports.h).
  std::unique_ptr<Block> value_block(std::size_t bytes) const override {
    return std::make_unique<HostBlock>(bytes, 64, 16);
  }
  void run(const BoundKernel& bound, const Call& call, KernelRun run) const override {
    static std::array<ThreadPool, 3> pools{ThreadPool(1), ThreadPool(2), ThreadPool(3)};
    run.pool = &pools.at(static_cast<std::size_t>(call.device.units - 1));
    std::vector<std::vector<float>> rows;  // before the run, which may overwrite its inputs
    if (const RowKernel* kernel = row_kernel_of(bound, call.problem.output_shape(), call.candidate.outputs[0]))
      for (const std::int64_t at_once : {1, 3, 4}) rows.push_back(by_rows(*kernel, run, at_once));
    const AllocationCount allocations;
    bound.run(run);
    if (allocations.count() > 0)
      FAIL_CHECK(
          fmt::format("{} allocations in a run of {}{}", allocations.count(), call.problem.op().type(), call.str()));
    for (const std::vector<float>& made : rows) {
      const std::size_t gap =
          run.outputs[0].elems() == 0 ? 0 : static_cast<std::size_t>(padding_between(run.outputs[0]));
      REQUIRE((made.size() - gap) * sizeof(float) == run.outputs[0].bytes());
      const std::size_t bytes = run.outputs[0].bytes();  // none: memcmp() takes no null pointer
      CHECK_MESSAGE((bytes == 0 || std::memcmp(made.data(), run.outputs[0].data(), bytes) == 0), call.str(),
                    ": rows by themselves have other bits");
    }
  }
};

}  // namespace

const OpRunner& cpu_op_runner() {
  static const CpuOpRunner runner;
  return runner;
}

}  // namespace lenslet::test
