// Epilogues that requantize: dense and sparse convolutions of 8-bit integers, by kernels that only show it.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <utility>

#define LENSLET_SIMD_BYTE_PRODUCTS
#include "base/simd/targets.h"
// After targets.h:
#include <hwy/highway.h>

#include "base/device_profile.h"
#include "base/half.h"
#include "ops/conv/conv.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/requantizing_conv.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

std::int64_t integer_at(const Tensor& tensor, std::int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  if (tensor.dtype() == DType::i8) return tensor.values<std::int8_t>()[at];
  if (tensor.dtype() == DType::u8) return tensor.values<std::uint8_t>()[at];
  return tensor.values<std::int32_t>()[at];
}

/// The sum of output `i`, exact, bias and relu included; all in nchw.
std::int64_t exact_sum(const ConvProblem& p, const std::vector<Tensor>& inputs, std::int64_t i) {
  const std::int64_t q = i % p.q, row = i / p.q % p.p, k = i / p.q / p.p % p.k, n = i / p.q / p.p / p.k;
  std::int64_t sum = p.bias ? integer_at(inputs[ConvOp::bias], k) : 0;
  for (std::int64_t c = 0; c < p.group_c(); ++c)
    for (std::int64_t r = 0; r < p.r; ++r)
      for (std::int64_t s = 0; s < p.s; ++s) {
        const std::int64_t h = row * p.stride_h - p.pad_top + r * p.dilation_h;
        const std::int64_t w = q * p.stride_w - p.pad_left + s * p.dilation_w;
        if (h < 0 || h >= p.h || w < 0 || w >= p.w) continue;
        const std::int64_t of_x = ((n * p.c + k / p.group_k() * p.group_c() + c) * p.h + h) * p.w + w;
        sum += (integer_at(inputs[ConvOp::input], of_x) - p.x_zero_point) *
               integer_at(inputs[ConvOp::filter], ((k * p.group_c() + c) * p.r + r) * p.s + s);
      }
  return p.activation.kind == Activation::Kind::relu ? std::max<std::int64_t>(0, sum) : sum;
}

/// Within half a step of the exact value, and at an end of y's range where that is beyond it.
void check_element(std::int64_t y, double exact, const Epilogue::Requantize& to, const std::string& where) {
  const double least = std::max(to.type == DType::i8 ? -128 : 0, to.least);
  const double most = std::min(to.type == DType::i8 ? 127 : 255, to.most);
  const double in_range = std::clamp(exact, least, most);
  // The multiplication rounds in float32.
  if (std::abs(static_cast<double>(y) - in_range) > 0.5 + 1e-4)
    FAIL_CHECK(fmt::format("{}: {} where {} is exact", where, y, exact));
}

struct Posed {
  std::unique_ptr<Problem> problem;
  std::vector<Tensor> inputs;
};

Posed pose_integers(ConvProblem p, DType x, const Epilogue::Requantize& to, unsigned seed) {
  Posed posed;
  const double low = x == DType::i8 ? -128 : 0, high = low + 256;
  posed.inputs = {random_of(x, {p.n, p.c, p.h, p.w}, seed, low, high),
                  random_of(DType::i8, {p.k, p.group_c(), p.r, p.s}, seed + 1, -128, 128),
                  p.bias ? random_of(DType::i32, {p.k}, seed + 2, -9999, 9999) : Tensor()};
  const ConvOp op(p);
  Epilogue epilogue = *op.epilogue();
  epilogue.requantize = to;
  posed.problem = std::make_unique<Problem>(op.with_epilogue(std::move(epilogue)), infos_of(posed.inputs, {1, 2}));
  return posed;
}

Epilogue::Requantize drawn(std::int64_t filters, DType type, std::mt19937& random) {
  Epilogue::Requantize to{.zero_point = type == DType::i8 ? -3 : 121, .type = type, .x_zero_point = 117};
  if (random() % 2 == 0) to.least = to.zero_point;
  if (random() % 2 == 0) to.most = to.zero_point + 100;
  std::uniform_real_distribution<float> uniform(1e-4F, 4e-3F);
  for (std::int64_t k = 0; k < filters; ++k) to.multipliers.push_back(uniform(random));
  return to;
}

}  // namespace

TEST_CASE("requantized/conv") {
  const unsigned seed = random_seed();
  bool clipped = false;
  std::mt19937 random(seed);
  for (const ConvProblem& p : convs({"2x5x9x11 -> 7, 3x3 s1 p1 g1 +bias +relu", "1x12x7x8 -> 18, 3x2 s2x1 p1,0,2,1 g3",
                                     "3x16x6x6 -> 33, 1x1 s1 p0 g1 +bias", "1x9x10x10 -> 9, 5x5 s1 p2 g9 d1x2 +bias"}))
    for (const DType x : {DType::i8, DType::u8})
      for (const DType y : {DType::i8, DType::u8}) {
        const Epilogue::Requantize to = drawn(p.k, y, random);
        const Posed posed = pose_integers(p, x, to, seed);
        const ConvProblem stated = conv_problem(*posed.problem);
        const std::vector<std::string> refusals =
            for_each_call(op_runner(), *posed.problem, requantizing_conv(), 1, [&](const Call& call) {
              const std::string where = fmt::format("{} {} to {}", p.str(), to_string(x), to_string(y));
              const Tensor result = run_between_guards(op_runner(), call, posed.inputs, where)[0];
              REQUIRE(result.dtype() == y);
              for (std::int64_t i = 0; i < result.elems(); ++i) {
                const std::int64_t k = i / p.q / p.p % p.k;
                const double exact = static_cast<double>(exact_sum(stated, posed.inputs, i)) *
                                         to.multipliers[static_cast<std::size_t>(k)] +
                                     to.zero_point;
                check_element(integer_at(result, i), exact, to, where);
                clipped = clipped || exact > (y == DType::i8 ? 127 : 255) || exact < (y == DType::i8 ? -128 : 0);
              }
            });
        CHECK(refusals.empty());
      }
  CHECK(clipped);  // else no element shows that it saturates
}

/// Every output in nchw, as the definition has it, bit for bit.
std::vector<std::int64_t> exact_codes(const ConvProblem& p, const std::vector<Tensor>& inputs,
                                      const Epilogue::Requantize& to) {
  const Requantization requantization{to.multipliers.data(), to.zero_point};
  std::vector<std::int64_t> codes(static_cast<std::size_t>(p.n * p.k * p.p * p.q));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i), k = at / p.q / p.p % p.k;
    const auto sum = static_cast<std::int32_t>(exact_sum(p, inputs, at));
    const int code =
        to.type == DType::i8 ? requantization.stored<std::int8_t>(sum, k) : requantization.stored<std::uint8_t>(sum, k);
    codes[i] = std::clamp(code, to.least, to.most);
  }
  return codes;
}

/// Why int8_amx takes no convolution here, or nothing.
std::string amx_refusal() {
  const Epilogue::Requantize to{.multipliers = {1.0F}};
  const Posed posed = pose_integers(convs({"1x64x5x5 -> 1, 1x1 s1 p0 g1"})[0], DType::u8, to, 1);
  const Kernel* const kernel = find_kernel("Conv", DeviceKind::cpu, "int8_amx");
  return kernel->offer(*posed.problem, {.device = cpu_profile(1)}).refusal;
}

/// Runs each kernel of Conv that takes the problem, with each instruction set, and counts it in `takers`.
void check_codes(const Posed& posed, const Epilogue::Requantize& to, const std::string& name,
                 std::map<std::string, int>& takers) {
  const std::vector<std::int64_t> expected = exact_codes(conv_problem(*posed.problem), posed.inputs, to);
  const std::string where = fmt::format("{} from {} to {}", name, to.x_zero_point, to_string(to.type));
  const auto check = [&](const Call& call) {
    ++takers[std::string(call.kernel.name())];
    const Tensor result = run_between_guards(op_runner(), call, posed.inputs, where)[0];
    std::size_t wrong = 0, first = 0;
    for (std::size_t i = expected.size(); i-- > 0;)
      if (integer_at(result, static_cast<std::int64_t>(i)) != expected[i]) ++wrong, first = i;
    CHECK_MESSAGE(wrong == 0, where, ", ", call.str(), ": ", wrong, " wrong, ",
                  integer_at(result, static_cast<std::int64_t>(first)), " at ", first, " for ", expected[first]);
  };
  for_each_target(HWY_TARGETS, [&] {
    for (const Kernel* kernel : kernels_of("Conv", op_runner().device()))
      for_each_call(op_runner(), *posed.problem, *kernel, 3, check);
  });
}

// Zero points at both ends of a byte; runs of no whole word, tiles and panels of all kinds, several pieces.
TEST_CASE("requantized/kernels_give_the_codes_of_the_definition") {
  if (op_runner().device() != DeviceKind::cpu) return;
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  std::map<std::string, int> takers;
  const std::vector<std::string> rows{"1x1x5x6 -> 1, 1x1 s1 p0 g1 +bias",
                                      "3x64x5x5 -> 33, 1x1 s1 p0 g1 +bias",
                                      "1x128x14x13 -> 64, 1x1 s1 p0 g1 +bias",
                                      "1x64x9x8 -> 80, 3x3 s1 p1 g1 +bias",
                                      "2x3x19x18 -> 16, 7x7 s2 p3 g1 +bias",
                                      "1x5x9x11 -> 7, 3x3 s1 p1 g1",
                                      "3x12x7x8 -> 18, 3x2 s2x1 p1,0,2,1 g3 +bias",
                                      "1x24x12x11 -> 40, 1x1 s2 p0 g1 +bias",
                                      "2x16x8x9 -> 24, 3x3 s1 p2 g1 d2x2 +bias",
                                      "2x48x13x10 -> 40, 3x3 s1 p1 g1 +bias",
                                      "1x10x3x40 -> 14, 2x3 s1 p0 g2 d1x2 +bias",
                                      "1x12x6x7 -> 24, 3x3 s1 p1 g12 +bias",
                                      "1x48x6x6 -> 48, 3x3 s1 p1 g12",
                                      "1x2048x1x300 -> 2, 1x2 s1 p0,1,0,0 g1",
                                      "1x68x1x19 -> 130, 1x3 s1 p0,1,0,1 g1 +bias",
                                      "3x320x1x1 -> 35, 1x1 s1 p0 g1 +bias",
                                      "1x284x4x5 -> 50, 1x1 s1 p0 g1 +bias"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ConvProblem p = convs({rows[i]})[0];
    Epilogue::Requantize to = drawn(p.k, i % 2 == 0 ? DType::u8 : DType::i8, random);
    to.x_zero_point = std::array{0, 117, 255}[i % 3];
    check_codes(pose_integers(p, DType::u8, to, seed), to, rows[i], takers);
  }
  // Products beyond 2^31, and no numbers.
  const ConvProblem p = convs({"1x16x5x7 -> 19, 1x1 s1 p0 g1 +bias"})[0];
  Epilogue::Requantize to = drawn(p.k, DType::u8, random);
  to.multipliers[3] = -1e9F;
  to.multipliers[17] = 5;
  check_codes(pose_integers(p, DType::u8, to, seed), to, "large multipliers", takers);
  to.multipliers[4] = std::numeric_limits<float>::quiet_NaN();
  to.multipliers[18] = -std::numeric_limits<float>::infinity();
  check_codes(pose_integers(p, DType::u8, to, seed), to, "multipliers that are no numbers", takers);
  if (std::getenv("LENSLET_LESSER_ONLY") != nullptr) return;  // for_each_target() did nothing
  CHECK(takers["int8_packed"] > 0);
  const std::string refusal = amx_refusal();
  CHECK((takers["int8_amx"] > 0) == refusal.empty());
}

TEST_CASE("requantized/refusals_of_int8_kernels") {
  const ConvProblem p = convs({"1x4x5x5 -> 1, 1x1 s1 p0 g1"})[0];
  const ConvProblem wide = convs({"1x1x3x3 -> 1, 3x3 s1 p20000 g1 d20000x20000"})[0];
  const Kernel* const kernel = find_kernel("Conv", DeviceKind::cpu, "int8_packed");
  const auto refusal = [&](std::int32_t of_x, std::int32_t of_y) {
    const Epilogue::Requantize to{.multipliers = {1.0F}, .zero_point = of_y, .x_zero_point = of_x};
    return kernel->offer(*pose_integers(p, DType::u8, to, 1).problem, {.device = cpu_profile(1)}).refusal;
  };
  CHECK((refusal(0, 0).empty() && refusal(255, 255).empty() && refusal(0, -128).empty()));
  for (const auto& [of_x, of_y] : {std::pair{-1, 0}, {256, 0}, {0, 256}, {0, -129}})
    CHECK(refusal(of_x, of_y) == "a zero point is no code");
  const Epilogue::Requantize to{.multipliers = {1.0F}};
  CHECK(kernel->offer(*pose_integers(wide, DType::u8, to, 1).problem, {.device = cpu_profile(1)}).refusal ==
        "a thread's copy of its input exceeds 64 MiB");
  CHECK(kernel->offer(*pose_integers(p, DType::i8, to, 1).problem, {.device = cpu_profile(1)}).refusal ==
        "its input is int8; only uint8 is supported");
}

TEST_CASE("requantized/int8_amx_takes_a_convolution_where_the_cpu_has_amx") {
  if (const std::string refusal = amx_refusal(); !refusal.empty()) MESSAGE("skipped: int8_amx: " << refusal);
}

TEST_CASE("requantized/round_trip_of_attributes") {
  ConvProblem p = convs({"1x3x5x5 -> 2, 3x3 s1 p1 g1 +bias"})[0];
  const Epilogue::Requantize to{
      .multipliers = {0.5F, 0.25F}, .zero_point = -7, .type = DType::i8, .x_zero_point = 9, .least = -7, .most = 99};
  const Posed posed = pose_integers(p, DType::u8, to, 1);
  const auto again = make_normalised_op("Conv", posed.problem->op().attributes(), 3);
  REQUIRE(again->epilogue()->requantize.has_value());
  CHECK(again->epilogue()->requantize->multipliers == to.multipliers);
  CHECK(again->epilogue()->requantize->zero_point == -7);
  CHECK(again->epilogue()->requantize->type == DType::i8);
  CHECK(again->epilogue()->requantize->x_zero_point == 9);
  CHECK(again->epilogue()->requantize->least == -7);
  CHECK(again->epilogue()->requantize->most == 99);
  CHECK(posed.problem->outputs()[0].dtype == DType::i8);
  // Another number of multipliers, or other types.
  Epilogue epilogue = *posed.problem->op().epilogue();
  epilogue.requantize->multipliers.pop_back();
  CHECK_THROWS_WITH_AS(Problem(posed.problem->op().with_epilogue(epilogue), posed.problem->inputs()),
                       "1 multipliers for 2 filters", Error);
  std::vector<InputInfo> floats(posed.problem->inputs().begin(), posed.problem->inputs().end());
  floats[0].type.dtype = DType::f32;
  CHECK_THROWS_AS(Problem(posed.problem->shared_op(), floats), Error);
  // No kernel that stores floats takes it.
  for (const Kernel* kernel : kernels_of("Conv", op_runner().device()))
    if (!kernel->name().starts_with("int8_"))
      CHECK(!kernel->offer(*posed.problem, {op_runner().profiles(1).at(0)}).refusal.empty());
}

TEST_CASE("requantized/elements") {
  const float multipliers[] = {0.5F, 1e30F, std::numeric_limits<float>::quiet_NaN()};
  const Requantization to{multipliers, 10};
  CHECK(to.stored<std::uint8_t>(std::int32_t{1}, 0) == 10);  // ties to even
  CHECK(to.stored<std::uint8_t>(std::int32_t{3}, 0) == 12);
  CHECK(to.stored<std::int8_t>(std::int32_t{-25}, 0) == -2);
  CHECK(to.stored<std::uint8_t>(std::int32_t{-25}, 0) == 0);
  CHECK(to.stored<std::int8_t>(std::int32_t{1}, 1) == 127);
  CHECK(to.stored<std::int8_t>(std::int32_t{-1}, 1) == -128);
  CHECK(to.stored<std::int8_t>(std::int32_t{1}, 2) == 0);
  CHECK(to.stored<std::int8_t>(250.0F, 0) == 127);
  CHECK(Requantization().stored<Float16>(1.0F, 0).bits == f16_from_f32(1.0F));  // conversions
  CHECK(Requantization().stored<BFloat16>(std::int32_t{3}, 0).bits == bf16_from_f32(3.0F));
  CHECK(Requantization().stored<float>(0.1F, 0) == 0.1F);
  CHECK(Requantization().stored<std::int32_t>(std::int32_t{-5}, 0) == -5);
}

}  // namespace lenslet::test
