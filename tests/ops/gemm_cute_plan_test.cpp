// How gemm_cute cuts products; what its kernels compute is in tests/cuda/gemm_cute_test.cpp.

#include <doctest/doctest.h>

#include <algorithm>

#include "lenslet/error.h"
#include "ops/core/config_text.h"
#include "ops/gemm/cute/gemm_cute.h"

namespace lenslet {
namespace {

using cuda::CutePlan;
using cuda::CuteProblem;
using Core = CutePlan::Core;

constexpr auto bf16 = Numerics::Multiply::bf16;

DeviceProfile ampere() {
  DeviceProfile device = reference_gpu();
  device.capability = 80;
  device.clusters = false;
  device.shared_bytes_per_block = 163 << 10;
  return device;
}

std::string text(const CutePlan& plan) {
  ConfigWriter config;
  plan.write(config);
  return config.str();
}

CutePlan read(std::string_view text, const CuteProblem& problem) {
  ConfigReader reader(text);
  const CutePlan plan = CutePlan::read(reader, problem);
  reader.finish();
  return plan;
}

TEST_CASE("gemm_cute/refusals") {
  const CuteProblem p{.multiply = bf16, .y_type = DType::bf16, .m = 8, .n = 8, .k = 8};
  if (!cuda::cute_built()) {
    CHECK(cuda::cute_refusal(p, reference_gpu()).find("without the headers of CUTLASS") != std::string::npos);
    CHECK(cuda::cute_plans(p, reference_gpu()).empty());
    return;
  }
  CHECK(cuda::cute_refusal(p, reference_gpu()).empty());
  DeviceProfile turing = ampere();
  turing.capability = 75;
  CHECK(cuda::cute_refusal(p, turing).find("compute capability 8.0") != std::string::npos);
  CuteProblem q = p;
  q.k = 0;
  CHECK(!cuda::cute_refusal(q, reference_gpu()).empty());
  q = p;
  q.batch = std::int64_t{1} << 32;
  CHECK(!cuda::cute_refusal(q, reference_gpu()).empty());
}

TEST_CASE("gemm_cute/plans_are_read_back") {
  if (!cuda::cute_built()) return;
  for (const DeviceProfile& device : {reference_gpu(), ampere()})
    for (const std::int64_t k : {1, 64, 136, 1000, 4096})
      for (const bool b_transposed : {true, false}) {
        const CuteProblem p{.multiply = bf16,
                            .y_type = DType::f32,
                            .m = 300,
                            .n = 1000,
                            .k = k,
                            .b_transposed = b_transposed,
                            .aligned = k % 8 == 0};
        const std::vector<CutePlan> plans = cuda::cute_plans(p, device);
        CHECK(!plans.empty());
        for (const CutePlan& plan : plans) {
          CHECK(read(text(plan), p) == plan);
          CHECK(cuda::cute_plan_us(p, plan, device) > 0);
          CHECK((cuda::cute_workspace_bytes(p, plan) > 0) == (plan.slices > 1));
          CHECK((plan.core == Core::mma || (device.capability == 90 && p.aligned)));
        }
      }
  const CuteProblem p{.multiply = bf16, .m = 64, .n = 64, .k = 7 * 64};
  CHECK(read("core=mma tile=64x64 slices=4", p).slices == 4);
  for (const std::string_view wrong :
       {"core=mma tile=64x64 slices=5", "core=mma tile=64x64 slices=8", "core=mma tile=64x64 slices=0",
        "core=wgmma tile=64x64 slices=1", "core=mma tile=64x64", ""})
    CHECK_THROWS_AS(read(wrong, p), Error);
  const CuteProblem odd{.multiply = bf16, .m = 64, .n = 64, .k = 65, .aligned = false};
  CHECK_THROWS_AS(read("core=wgmma tile=128x128 slices=1", odd), Error);
}

TEST_CASE("gemm_cute/choices") {
  if (!cuda::cute_built()) return;
  const auto plan = [](std::int64_t m, std::int64_t n, std::int64_t k, const DeviceProfile& device) {
    return cuda::plan_cute({.multiply = bf16, .y_type = DType::bf16, .m = m, .n = n, .k = k, .aligned = k % 8 == 0},
                           device);
  };
  CHECK(text(plan(8192, 8192, 8192, ampere())) == "core=mma tile=128x128 slices=1");
  CHECK(text(plan(500, 500, 63, reference_gpu())) == "core=mma tile=64x64 slices=1");
  // Few tiles and much to sum: slices, so that enough multiprocessors read.
  CHECK(plan(64, 1000, 25088, reference_gpu()).slices > 1);
  CHECK(plan(64, 1000, 25088, ampere()).slices > 1);
  const std::vector<CutePlan> all =
      cuda::cute_plans({.multiply = bf16, .m = 8192, .n = 8192, .k = 8192}, reference_gpu());
  const bool wgmma = std::any_of(all.begin(), all.end(), [](const CutePlan& p) { return p.core == Core::wgmma; });
  if (wgmma)  // in a build for sm_90a
    CHECK(text(plan(8192, 8192, 8192, reference_gpu())) == "core=wgmma tile=128x256 slices=1");
}

}  // namespace
}  // namespace lenslet
