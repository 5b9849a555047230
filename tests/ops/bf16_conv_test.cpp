// The CPU's convolutions of bfloat16 compared with the double-precision oracle.

#include <doctest/doctest.h>
#include <hwy/highway.h>

#include <cmath>
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
              "1x12x7x6 -> 18, 3x3 s1 p1 g3 d2x1 +residual", "1x3x9x9 -> 8, 5x5 s2 p2 g1 +bias +relu",
              "1x37x9x16 -> 37, 3x3 s1 p1 g37 +bias +relu +residual", "2x50x40x9 -> 50, 5x5 s2 p2 g50 +bias",
              "1x71x9x10 -> 71, 7x7 s1 p3 g71 d2x1", "1x9x11x12 -> 9, 4x2 s3 p1 g9 +bias"})) {
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

// A zero weight does not cancel an infinity: pads, added channels, other groups and neighbouring pixels must not meet
// it.
TEST_CASE("bf16_conv/an_infinity_reaches_its_own_windows_alone") {
  if (op_runner().device() != DeviceKind::cpu) return;
  std::mt19937 random(random_seed());
  for (const ConvProblem& stated :
       convs({"1x3x9x9 -> 5, 3x3 s1 p1 g1", "1x5x9x9 -> 40, 1x1 s1 p0 g1", "1x12x9x9 -> 6, 3x3 s1 p1 g2",
              "1x19x9x9 -> 19, 3x3 s1 p1 g19", "1x34x9x9 -> 4, 1x1 s1 p0 g1"})) {
    const ConvProblem p = in_bf16(stated);
    ConvData data = make_conv_data(p, random);
    constexpr std::int64_t h = 4, w = 4;
    const std::int64_t c = p.c / 2, reach = p.r / 2, group = c / p.group_c();
    static_cast<std::uint16_t*>(data.x.data())[(c * p.h + h) * p.w + w] = 0x7F80;
    const auto problem = pose(p, data.w, data.scale);
    const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
    for (const Kernel* kernel : algorithms())
      for_each_call(op_runner(), *problem, *kernel, 2, [&](const Call& call) {
        CAPTURE(call.str());
        const Tensor y = run_between_guards(op_runner(), call, inputs, call.str()).at(0);
        const std::vector<double> values = oracle::from_tensor(y.to_format(formats::nchw)).values;
        for (std::int64_t k = 0, i = 0; k < p.k; ++k)
          for (std::int64_t row = 0; row < p.p; ++row)
            for (std::int64_t q = 0; q < p.q; ++q, ++i) {
              const bool meets = k / p.group_k() == group && std::abs(row - h) <= reach && std::abs(q - w) <= reach;
              CHECK(std::isfinite(values[static_cast<std::size_t>(i)]) == !meets);
            }
      });
  }
}

}  // namespace lenslet::test
