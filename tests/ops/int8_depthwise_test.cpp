// int8_depthwise against the convolution by its definition, bit for bit.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#define LENSLET_SIMD_BYTE_PRODUCTS
#include "base/simd/targets.h"
// After targets.h:
#include <hwy/highway.h>

#include "ops/conv/conv.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/requantizing_conv.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

/// The problem with drawn elements, and codes as of Relu and Clip, or large multipliers.
std::vector<Tensor> draw(const ConvProblem& p, unsigned seed) {
  return {random_of(DType::u8, {p.n, p.c, p.h, p.w}, seed, 0, 255.9),
          random_of(DType::i8, {p.k, 1, p.r, p.s}, seed + 1, -128, 127.9),
          p.bias ? random_of(DType::i32, {p.k}, seed + 2, -9999, 9999) : Tensor()};
}

Epilogue::Requantize codes(const ConvProblem& p, std::mt19937& random) {
  Epilogue::Requantize to;
  to.type = random() % 3 == 0 ? DType::i8 : DType::u8;
  const std::int32_t least = to.type == DType::i8 ? -128 : 0;
  const std::int32_t ends[] = {0, 255, 117};
  to.zero_point = least + ends[random() % 3];
  to.x_zero_point = ends[random() % 3];
  if (random() % 2 == 0) to.least = to.zero_point;
  if (random() % 2 == 0) to.most = std::min(least + 255, to.zero_point + 100);
  std::uniform_real_distribution<float> uniform(1e-4F, 2e-2F);
  for (std::int64_t k = 0; k < p.k; ++k) to.multipliers.push_back(uniform(random));
  to.multipliers[static_cast<std::size_t>(p.k) / 2] = 1e9F;
  to.multipliers.back() = -3;
  return to;
}

}  // namespace

TEST_CASE("int8_depthwise/gives_the_codes_of_the_definition") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  const Kernel& kernel = *find_kernel("Conv", DeviceKind::cpu, "int8_depthwise");
  const std::vector<ConvProblem> problems =
      convs({"1x1x5x6 -> 1, 3x3 s1 p1 g1 +bias", "2x19x9x11 -> 19, 3x3 s1 p1 g19 +bias",
             "1x64x14x13 -> 64, 3x3 s2 p1 g64 +bias", "1x72x28x9 -> 72, 5x5 s2 p1,2,2,1 g72 +bias",
             "2x130x7x7 -> 130, 5x5 s1 p2 g130", "1x40x13x12 -> 40, 7x7 s1 p3 g40 +bias",
             "1x33x9x10 -> 33, 3x3 s1 p2 g33 d2x2 +bias", "1x8x6x31 -> 8, 2x4 s3x2 p0 g8 d1x3 +bias",
             "1x16x1x3 -> 16, 1x1 s1 p0 g16 +bias", "1x17x14x9 -> 17, 11x3 s1 p5,1,5,1 g17 +bias",
             "1x5x4x3 -> 5, 3x3 s4x4 p1 g5 +bias", "1x300x20x21 -> 300, 3x3 s1 p1 g300 +bias"});
  for_each_target(HWY_TARGETS, [&] {
    for (const ConvProblem& p : problems) {
      const std::vector<Tensor> inputs = draw(p, seed);
      const ConvOp op(p);
      Epilogue epilogue = *op.epilogue();
      epilogue.requantize = codes(p, random);
      const Problem problem(op.with_epilogue(std::move(epilogue)), infos_of(inputs, {1, 2}));
      const auto run = [&](const Kernel& of, int times) {
        std::vector<Tensor> results;
        for_each_call(cpu_op_runner(), problem, of, times, [&](const Call& call) {
          results.push_back(run_between_guards(cpu_op_runner(), call, inputs, p.str())[0].to_format(formats::nchw));
        });
        return results;
      };
      const Tensor expected = run(requantizing_conv(), 1).at(0);
      const std::vector<Tensor> results = run(kernel, 3);
      CHECK(results.size() >= 2);
      for (const Tensor& result : results) {
        const auto* const a = static_cast<const std::uint8_t*>(expected.data());
        const auto* const b = static_cast<const std::uint8_t*>(result.data());
        const auto wrong = std::mismatch(a, a + expected.elems(), b).first - a;
        if (wrong != expected.elems())
          FAIL_CHECK(fmt::format("{}: element {} is {} instead of {}", p.str(), wrong, b[wrong], a[wrong]));
      }
    }
  });
}

TEST_CASE("int8_depthwise/refuses_what_is_not_depthwise") {
  const Kernel& kernel = *find_kernel("Conv", DeviceKind::cpu, "int8_depthwise");
  const auto refusal = [&](const char* text, DType x) {
    const ConvProblem p = convs({text})[0];
    std::vector<Tensor> inputs = draw(p, 1);
    inputs[0] = random_of(x, inputs[0].shape(), 1, 0, 100);
    inputs[1] = random_of(DType::i8, {p.k, p.group_c(), p.r, p.s}, 1, -128, 127.9);
    const ConvOp op(p);
    Epilogue epilogue = *op.epilogue();
    std::mt19937 random(1);
    epilogue.requantize = codes(p, random);
    const Problem problem(op.with_epilogue(std::move(epilogue)), infos_of(inputs, {1, 2}));
    return kernel.offer(problem, {.device = cpu_op_runner().profiles(1).at(0)}).refusal;
  };
  CHECK(refusal("1x8x5x6 -> 8, 3x3 s1 p1 g8 +bias", DType::u8).empty());
  CHECK(refusal("1x8x5x6 -> 8, 3x3 s1 p1 g8 +bias", DType::i8) == "its input is int8; only uint8 is supported");
  CHECK(refusal("1x8x5x6 -> 8, 3x3 s1 p1 g4 +bias", DType::u8) == "it has other filters than one a channel");
  CHECK(refusal("1x8x5x6 -> 16, 3x3 s1 p1 g8 +bias", DType::u8) == "it has other filters than one a channel");
  CHECK(refusal("1x8x5x6 -> 8, 3x3 s1 p1 g8 +bias +relu", DType::u8) == "its activation is no range of codes");
}

}  // namespace lenslet::test
