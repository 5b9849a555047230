// The CPU's convolutions of bfloat16 compared with the double-precision oracle.

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/conv.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"
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
  for (const ConvCase& c : conv_cases())
    if (c.problem.flops() < 2e7) check_conv(algorithms(), in_bf16(c.problem), random_seed(), threads);
}

TEST_CASE("bf16_conv/drawn_problems") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i)
    check_conv(algorithms(), in_bf16(random_problem(random), i % 3 == 0 ? DType::f32 : DType::bf16),
               seed + static_cast<unsigned>(i), threads);
}

}  // namespace lenslet::test
