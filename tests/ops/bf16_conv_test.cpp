// The CPU's convolutions of bfloat16 compared with the double-precision oracle.

#include <doctest/doctest.h>
#include <hwy/highway.h>

#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/conv.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

constexpr int threads = 3;

std::vector<const Kernel*> algorithms() {
  std::vector<const Kernel*> list;
  for (const Kernel* algorithm : kernels_of("Conv", DeviceKind::cpu))
    if (algorithm->name().starts_with("bf16_")) list.push_back(algorithm);
  return list;
}

ConvProblem in_bf16(ConvProblem p, DType x = DType::bf16) {
  p.storage = DType::bf16;
  p.x_storage = x;
  return p;
}

}  // namespace

TEST_CASE("bf16_conv/small_cases") {
  if (op_runner().device() != DeviceKind::cpu) return;
  for (const ConvCase& c : conv_cases())
    if (c.problem.flops() < 2e7) check_conv(algorithms(), in_bf16(c.problem), random_seed(), threads);
}

TEST_CASE("bf16_conv/drawn_problems") {
  if (op_runner().device() != DeviceKind::cpu) return;
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i)
    check_conv(algorithms(), in_bf16(random_problem(random), i % 3 == 0 ? DType::f32 : DType::bf16),
               seed + static_cast<unsigned>(i), threads);
}

// Panels and words that are not full, x that is copied and x that is not.
TEST_CASE("bf16_conv/every_configuration_and_instruction_set") {
  if (op_runner().device() != DeviceKind::cpu) return;
  std::mt19937 random(random_seed());
  for (const ConvProblem& stated :
       convs({"2x5x6x7 -> 37, 3x3 s2 p1 g1 +bias +relu +residual", "1x34x5x9 -> 21, 1x1 s1 p0 g1 +bias",
              "1x12x7x6 -> 18, 3x3 s1 p1 g3 d2x1 +residual", "1x3x9x9 -> 8, 5x5 s2 p2 g1 +bias +relu"})) {
    const ConvProblem p = in_bf16(stated, stated.c == 3 ? DType::f32 : DType::bf16);
    const ConvData data = make_conv_data(p, random);
    const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
    const auto problem = pose(p, data.w, data.scale);
    const DeviceProfile device = cpu_profile(2);
    for_each_target(HWY_TARGETS, [&] {
      for (const Kernel* kernel : algorithms())
        for (const Candidate& candidate : kernel->all_candidates(*problem, {device})) {
          const Call call{.problem = *problem, .kernel = *kernel, .candidate = candidate, .device = device};
          compare(run_between_guards(cpu_op_runner(), call, inputs, call.str()).at(0), data, candidate.tolerance,
                  call.str());
        }
    });
  }
}

}  // namespace lenslet::test
