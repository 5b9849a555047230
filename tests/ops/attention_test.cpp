// Attention against the oracle.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>

#include "ops/gemm/attention_cuda.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

using Ints = std::vector<std::int64_t>;
/// A score of 32 products of normal values errs by 1.1e-6 in the order of the SCALAR kernels, and so does its power.
constexpr double float_tolerance = 2e-6;
/// Powers are rounded: 6.7 roundoffs of bfloat16, and what the kernel states if that is less.
constexpr double half_tolerance = 0.027;

/// As a pass makes it: n problems of packed [n,l,3,h,d], one input for all three.
OpCase packed(std::int64_t n, std::int64_t h, std::int64_t l, std::int64_t d, bool tokens_first, unsigned seed) {
  const std::int64_t row = 3 * h * d;
  return {.op = "Attention",
          .opset = 0,
          .attributes = {{"scale", 0.4},
                         {"sizes", Ints{n, h, l, l, d, d}},
                         {"q", Ints{0, l * row, d, row}},
                         {"k", Ints{h * d, l * row, d, row}},
                         {"v", Ints{2 * h * d, l * row, d, row}},
                         {"y", tokens_first ? Ints{0, l * h * d, d, h * d} : Ints{0, l * h * d, l * d, d}},
                         {"y_shape", tokens_first ? Ints{n, l, h * d} : Ints{n, h, l, d}}},
          .inputs = {random_f32({n, l, row}, seed, 0, 2), {}, {}},
          .tolerance = float_tolerance,
          .half_tolerance = half_tolerance};
}

/// The rows of `problems` windows in any order.
Tensor table_of_rows(std::int64_t problems, std::int64_t tokens, unsigned seed) {
  Tensor table(DType::i32, Shape{problems, tokens});
  const auto rows = table.values<std::int32_t>();
  std::iota(rows.begin(), rows.end(), 0);
  std::shuffle(rows.begin(), rows.end(), std::mt19937(seed));
  return table;
}

/// CPU kernels do not go by the number of problems.
std::int64_t problems_here(std::int64_t problems) {
  return op_runner().device() == DeviceKind::cuda ? problems : std::min<std::int64_t>(problems, 2);
}

}  // namespace

TEST_CASE("attention/queries_keys_and_sizes_of_heads") {
  unsigned seed = 1;
  const std::int64_t sizes[][4] = {// queries, keys, D, E
                                   {1, 1, 8, 8},   {1, 77, 13, 5},  {2, 200, 16, 24}, {49, 49, 32, 32}, {33, 7, 1, 9},
                                   {65, 1, 9, 40}, {200, 64, 8, 8}, {5, 48, 128, 17}, {13, 33, 31, 1}};
  for (const auto& [l, s, d, e] : sizes)
    check_op({.op = "Attention",
              .opset = 23,
              .inputs = {random_f32({2, 3, l, d}, seed++, 0, 2), random_f32({2, 3, s, d}, seed++, 0, 2),
                         random_f32({2, 3, s, e}, seed++, 0, 1)},
              .tolerance = float_tolerance,
              .half_tolerance = half_tolerance});
}

TEST_CASE("attention/tokens_first_with_biases") {
  unsigned seed = 100;
  for (const Shape& bias : {Shape{1}, Shape{19}, Shape{7, 19}, Shape{2, 1, 19}, Shape{1, 2, 7, 19}, Shape{3, 2, 1, 19},
                            Shape{3, 1, 7, 19}, Shape{3, 2, 7, 19}}) {
    const std::int64_t keys = bias[bias.rank() - 1];
    check_op({.op = "Attention",
              .opset = 23,
              .attributes = {{"q_num_heads", std::int64_t{2}}, {"kv_num_heads", std::int64_t{2}}, {"scale", 0.25}},
              .inputs = {random_f32({3, 7, 22}, seed++, 0, 2), random_f32({3, keys, 22}, seed++, 0, 2),
                         random_f32({3, keys, 10}, seed++, 0, 1), random_f32(bias, seed++, 0, 3)},
              .maybe_constant = {3},
              .tolerance = float_tolerance,
              .half_tolerance = half_tolerance});
  }
}

TEST_CASE("attention/more_keys_than_shared_memory_holds") {
  unsigned seed = 600;
  // Few problems, whose keys warps share on CUDA, and many; heads of each width; biases in pairs and odd ones.
  const std::int64_t sizes[][6] = {// problems, heads, queries, keys, D, E
                                   {1, 2, 20, 300, 64, 64},   {1, 1, 5, 641, 32, 24},    {1, 3, 40, 130, 128, 100},
                                   {2, 1, 17, 77, 16, 16},    {45, 3, 130, 322, 8, 8},   {150, 2, 33, 197, 64, 40},
                                   {140, 2, 18, 333, 80, 72}, {1, 1, 2113, 150, 32, 32}, {1, 70, 130, 90, 32, 32},
                                   {140, 1, 40, 1, 8, 8},     {140, 1, 40, 64, 128, 128}};
  for (const auto& [problems, heads, queries, s, d, e] : sizes)
    for (const bool biased : {false, true}) {
      const bool cuda = op_runner().device() == DeviceKind::cuda;
      const std::int64_t n = problems_here(problems), l = cuda ? queries : std::min<std::int64_t>(queries, 40);
      OpCase c{.op = "Attention",
               .opset = 23,
               .inputs = {random_f32({n, heads, l, d}, seed++, 0, 2), random_f32({n, heads, s, d}, seed++, 0, 2),
                          random_f32({n, heads, s, e}, seed++, 0, 1)},
               .tolerance = float_tolerance,
               .half_tolerance = half_tolerance};
      if (biased) c.inputs.push_back(random_f32({1, heads, l, s}, seed++, 0, 3)), c.maybe_constant = {3};
      check_op(c);
      if (std::getenv("LENSLET_TEST_REDUCED") != nullptr) break;
    }
}

// On CUDA in 16 bits biases are divided by the scale first.
TEST_CASE("attention/scales_of_any_sign_beside_biases") {
  unsigned seed = 650;
  for (const double scale : {0.0, -0.3, 1e-3})
    check_op({.op = "Attention",
              .opset = 23,
              .attributes = {{"scale", scale}},
              .inputs = {random_f32({2, 2, 21, 24}, seed++, 0, 2), random_f32({2, 2, 90, 24}, seed++, 0, 2),
                         random_f32({2, 2, 90, 24}, seed++, 0, 1), random_f32({1, 2, 21, 90}, seed++, 0, 3)},
              .tolerance = float_tolerance,
              .half_tolerance = half_tolerance});
}

TEST_CASE("attention/where_a_pass_finds_it") {
  check_op_on_every_instruction_set(packed(4, 3, 49, 8, true, 200));
  check_op(packed(2, 1, 20, 5, false, 201));
  // As many heads as tiles of warpgroups need on CUDA, whose tokens lie further apart than their heads.
  for (const std::int64_t d : {24, 32, 64}) {
    OpCase many = packed(problems_here(50), 2, 70, d, true, static_cast<unsigned>(210 + d));
    check_op(many);
    many.inputs.push_back(random_f32({1, 2, 70, 70}, 209, 0, 2));
    many.maybe_constant = {3};
    check_op(many);
    // K and V of all heads.
    for (const std::size_t i : {3U, 4U}) std::get<Ints>(many.attributes[i].second)[2] = 0;
    check_op(many);
  }
  // A bias of half as many problems: they take it in turn.
  OpCase masked = packed(6, 2, 17, 9, true, 202);
  masked.inputs.push_back(random_f32({3, 1, 17, 17}, 203, 0, 2));
  for (std::size_t i = 0; i < 3 * 17 * 17; i += 3) masked.inputs[3].values<float>()[i] = -100;
  check_op_on_every_instruction_set(masked);
  // Tokens before problems.
  OpCase turned = packed(2, 3, 6, 4, true, 208);
  turned.attributes[5].second = Ints{0, 12, 4, 24};
  turned.attributes[6].second = Ints{6, 2, 12};
  check_op(turned);
  // K of a value, V of another, Y under another shape.
  OpCase apart = packed(2, 2, 6, 4, true, 204);
  apart.attributes[3].second = Ints{3, 50, 5, 10};
  apart.attributes[4].second = Ints{1, 0, 0, 4};
  apart.attributes[6].second = Ints{4, 3, 8};
  apart.inputs = {random_f32({2, 6, 24}, 205), random_f32({120}, 206), random_f32({5, 5}, 207)};
  check_op(apart);
}

TEST_CASE("attention/rows_by_a_table") {
  unsigned seed = 400;
  for (const auto& [n, problems, tokens, d] :
       {std::array{4, 4, 49, 32}, {6, 2, 17, 9}, {2, 1, 70, 40}, {3, 3, 5, 130}, {72, 9, 49, 24}}) {
    OpCase c = packed(n, 2, tokens, d, true, seed++);
    c.inputs.push_back(random_f32({problems, 2, tokens, tokens}, seed++, 0, 2));
    c.inputs.push_back(table_of_rows(problems, tokens, seed++));
    c.constant = {4};
    c.maybe_constant = {3};
    check_op_on_every_instruction_set(c);
    c.inputs[3] = Tensor();
    c.maybe_constant = {};
    check_op(c);
  }
}

TEST_CASE("attention/linear") {
  unsigned seed = 600;
  for (const auto& [n, h, l, d] : {std::array{2, 3, 196, 16}, {1, 2, 300, 32}, {3, 1, 7, 5}, {1, 1, 1, 1}}) {
    OpCase c = packed(n, h, l, d, true, seed++);
    c.attributes.emplace_back("linear_epsilon", 1e-5);
    c.half_tolerance = float_tolerance;  // sums and products are in float32
    check_op_on_every_instruction_set(c);
  }
  // Other numbers of queries, keys and channels; K of a value, V of another. Rows without a positive K give 0 /
  // epsilon.
  OpCase apart = packed(2, 2, 6, 4, true, seed++);
  apart.attributes[1].second = Ints{2, 2, 6, 130, 4, 9};
  apart.attributes[3].second = Ints{3, 0, 7, 14};
  apart.attributes[4].second = Ints{1, 1170, 0, 9};
  apart.attributes[5].second = Ints{0, 108, 9, 18};
  apart.attributes[6].second = Ints{2, 6, 18};
  apart.attributes.emplace_back("linear_epsilon", 0.5);
  apart.inputs = {random_f32({2, 6, 24}, seed++), random_f32({1840}, seed++), random_f32({2341}, seed++)};
  apart.half_tolerance = float_tolerance;
  check_op(apart);
  for (float& value : apart.inputs[1].values<float>()) value = -value * value;
  check_op(apart);
}

/// Scores between channels: `tokens` of packed [n,tokens,3,heads,d], of a deviation of 1.5.
OpCase between_channels(std::int64_t n, std::int64_t heads, std::int64_t tokens, std::int64_t d, unsigned seed) {
  OpCase c = packed(n, heads, tokens, d, true, seed);
  c.attributes[0].second = 1.5 / (4 * std::sqrt(static_cast<double>(tokens)));
  c.attributes[1].second = Ints{n, heads, d, d, tokens, tokens};
  c.attributes.emplace_back("between_channels", std::int64_t{1});
  c.tolerance *= std::max(1.0, std::sqrt(static_cast<double>(tokens) / 196));  // sums of more terms
  return c;
}

// On CUDA one block a head and several, of one tile and of more; heads that are read 16 bytes at a time and that are
// not.
TEST_CASE("attention/between_channels") {
  unsigned seed = 800;
  for (const auto& [problems, heads, tokens, d] : {std::array{2, 3, 49, 32},
                                                   {1, 2, 200, 24},
                                                   {1, 3, 300, 32},
                                                   {1, 1, 400, 48},
                                                   {1, 2, 70, 64},
                                                   {1, 2, 9, 12},
                                                   {1, 2, 330, 22},
                                                   {1, 1, 1, 1},
                                                   {1, 1, 2, 33},
                                                   {88, 3, 260, 8}}) {
    const OpCase c = between_channels(problems_here(problems), heads, tokens, d, seed++);
    check_op(c);
    OpCase unit = c;
    unit.attributes[0].second = 1.0;
    unit.attributes.emplace_back("qk_norm_epsilon", 1e-12);
    const auto scales = random_f32({heads}, seed++, 0, 4);
    unit.attributes.emplace_back("head_scales",
                                 std::vector<double>(scales.values<float>().begin(), scales.values<float>().end()));
    check_op(unit);
    if (std::getenv("LENSLET_TEST_REDUCED") != nullptr) continue;
    unit.attributes.pop_back();
    unit.attributes.back().second = 2.0 * std::sqrt(static_cast<double>(tokens));  // of about half of the columns
    check_op(unit);
  }
}

// Channels of K and V beside fewer of Q, more tokens of V than of Q, K of a value and V of another, Y in channels last
// of heads; columns of zeros.
TEST_CASE("attention/between_channels_of_several_values") {
  unsigned seed = 900;
  for (const std::int64_t tokens : {40, 290}) {
    const std::int64_t values = tokens + 31;
    OpCase c = between_channels(2, 2, tokens, 16, seed++);
    c.attributes[1].second = Ints{2, 2, 16, 24, tokens, values};
    c.attributes[2].second = Ints{8, tokens * 40, 16, 40};
    c.attributes[3].second = Ints{3, 0, 24, 51};
    c.attributes[4].second = Ints{0, values * 24, 2 * values * 24, 24};
    c.attributes[5].second = Ints{0, values * 32, 16, 32};
    c.attributes[6].second = Ints{2, values, 32};
    c.attributes.emplace_back("qk_norm_epsilon", 1e-12);
    c.inputs = {random_f32({2, tokens, 40}, seed++), random_f32({tokens, 51}, seed++),
                random_f32({2, 2, values, 24}, seed++)};
    for (std::size_t i = 8; i < c.inputs[0].values<float>().size(); i += 40) c.inputs[0].values<float>()[i] = 0;
    check_op_on_every_instruction_set(c);
  }
}

TEST_CASE("attention/between_channels_refusals") {
  OpCase c = between_channels(2, 1, 9, 64, 1);
  CHECK(refusal(c).empty());
  c.attributes[5].second = Ints{0, 64, 64, 128};
  c.attributes[6].second = Ints{9, 2, 64};
  CHECK(refusal(c).empty());
  c.attributes[5].second = Ints{0, 64, 64, 64};
  CHECK(refusal(c) == "y [9,2,64] does not hold the rows of [2,1,64,9] once each");
  c = between_channels(2, 1, 9, 64, 1);
  c.attributes[3].second = Ints{64, 9 * 192 + 2, 0, 192};
  CHECK(refusal(c).empty());
  c.attributes[3].second = Ints{64, 9 * 192 + 65, 0, 192};
  CHECK(refusal(c) == "K reaches element 3456 of an input [2,9,192]");
  c = between_channels(2, 1, 9, 64, 1);
  c.inputs.push_back(random_f32({64, 64}, 2));
  CHECK(refusal(c) == "attention between channels has no bias and no table of rows, and is not linear");
  c.inputs.pop_back();
  c.attributes.emplace_back("linear_epsilon", 1.0);
  CHECK(refusal(c) == "attention between channels has no bias and no table of rows, and is not linear");
}

// What a device's blocks hold, without a device.
TEST_CASE("attention/between_channels_on_cuda") {
  const auto refused = [](std::int64_t n, std::int64_t tokens, std::int64_t d) {
    const OpCase c = between_channels(1, 1, 1, d, 1);
    AttributeList attributes = c.attributes;
    attributes[1].second = Ints{n, 1, d, d, tokens, tokens};
    attributes[5].second = Ints{0, tokens * d, d, d};
    attributes[6].second = Ints{n, tokens, d};
    const InputInfo input{.present = true, .type = {DType::f16, Shape{n * tokens * 3 * d}}};
    const Problem problem(make_normalised_op("Attention", attributes, 1), {&input, 1});
    return kernels_of("Attention", DeviceKind::cuda).front()->offer(problem, {reference_gpu()}).refusal;
  };
  CHECK(refused(1, 9, 64).empty());
  CHECK(refused(1, 9, 65) == "more than 64 channels a head");
  CHECK(refused(1 << 20, 1 << 10, 8).empty());
  CHECK(refused(1, (std::int64_t{1} << 31) - (1 << 17), 1).empty());
  CHECK(refused(1, (std::int64_t{1} << 31) - (1 << 16), 1) == "more than 2^31 - 1 tokens of heads");
  CHECK(refused(1 << 21, 1 << 10, 8) == "more than 2^31 - 1 tokens of heads");

  // DaViT-T's: several blocks a head where there are few heads of many tokens.
  const auto blocks = [](std::int64_t n, std::int64_t heads, std::int64_t tokens, std::int64_t d) {
    const AttentionProblem p{.n = n,
                             .heads = heads,
                             .queries = d,
                             .keys = d,
                             .head_size = tokens,
                             .value_size = tokens,
                             .between_channels = true};
    const std::int64_t count = cuda::channel_attention_blocks(p), width = cuda::channel_attention_width(p);
    CHECK(width == (d <= 32 ? 32 : 64));
    CHECK(cuda::channel_attention_workspace(p) ==
          (count == 1 ? 0U : static_cast<std::size_t>(4 * n * heads * width * (count * (width + 2) + width))));
    return count;
  };
  CHECK(blocks(1, 3, 3136, 32) == 49);
  CHECK(blocks(64, 3, 3136, 32) == 4);
  CHECK(blocks(1, 6, 784, 33) == 13);
  CHECK(blocks(64, 6, 784, 32) == 1);
  CHECK(blocks(1, 12, 256, 64) == 1);
  CHECK(blocks(1, 12, 257, 64) == 5);
  CHECK(blocks(1, 263, 300, 32) == 3);
  CHECK(blocks(1, 264, 300, 32) == 1);
  CHECK(blocks(0, 3, 3136, 32) == 49);
}

TEST_CASE("attention/normalised_rows_and_a_scale_for_each_head") {
  unsigned seed = 500;
  // On CUDA in 16 bits each width of head: 32, 64, 128, and more.
  for (const auto& [n, heads, tokens, d] : {std::array{4, 3, 49, 32},
                                            {2, 2, 20, 5},
                                            {1, 1, 1, 1},
                                            {2, 1, 70, 40},
                                            {1, 2, 130, 64},
                                            {1, 3, 33, 100},
                                            {1, 1, 700, 32},
                                            {1, 2, 9, 130},
                                            {1, 64, 3, 2}}) {
    OpCase c = packed(n, heads, tokens, d, true, seed++);
    c.attributes.emplace_back("qk_norm_epsilon", 1e-12);
    c.tolerance *= std::max(1.0, std::sqrt(static_cast<double>(tokens) / 196));  // sums of more terms
    check_op_on_every_instruction_set(c);
    const auto scales = random_f32({heads}, seed++, 5, 4);
    c.attributes.emplace_back("head_scales",
                              std::vector<double>(scales.values<float>().begin(), scales.values<float>().end()));
    c.inputs.push_back(random_f32({n, heads, tokens, tokens}, seed++, 0, 2));
    check_op(c);
    c.inputs.push_back(table_of_rows(n, tokens, seed++));
    c.constant = {4};
    check_op(c);
    c.attributes.erase(c.attributes.end() - 2);  // the scales alone
    check_op(c);
  }
  // Q of one tensor, K of another with more tokens, whose rows are no longer than epsilon or zeros.
  OpCase apart = packed(2, 2, 6, 8, true, seed++);
  apart.attributes[1].second = Ints{2, 2, 6, 70, 8, 8};
  for (const std::size_t i : {3U, 4U}) apart.attributes[i].second = Ints{0, 70 * 16, 8, 16};
  apart.attributes.emplace_back("qk_norm_epsilon", 2.5);
  apart.inputs = {random_f32({2, 6, 48}, seed++), random_f32({2, 70, 16}, seed++), random_f32({2, 70, 16}, seed++)};
  std::ranges::fill(apart.inputs[1].values<float>().first(40), 0.0F);
  check_op_on_every_instruction_set(apart);
}

TEST_CASE("attention/masked_scores") {
  const float inf = std::numeric_limits<float>::infinity();
  Tensor mask(DType::f32, Shape{3, 20});
  for (std::size_t i = 0; i < 60; ++i) mask.values<float>()[i] = i < 20 ? -inf : i % 2 == 0 ? -inf : 0;
  const OpCase c{
      .op = "Attention",
      .opset = 23,
      .inputs = {random_f32({1, 1, 3, 4}, 300), random_f32({1, 1, 20, 4}, 301), random_f32({1, 1, 20, 6}, 302), mask},
      .tolerance = float_tolerance,
      .half_tolerance = half_tolerance};
  check_op(c);  // the first row has no key: zeros
  const Tensor y = run_op(c)[0];
  for (const float value : y.values<float>().first(6)) CHECK(value == 0);
}

// Rows without a key in one tile of 64, in one warp's share, and in none.
TEST_CASE("attention/masked_tiles") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto& [problems, heads, l] : {std::array{1, 1, 5}, {140, 2, 5}, {140, 1, 35}}) {
    const std::int64_t n = problems_here(problems), s = 330;
    Tensor mask(DType::f32, Shape{l, s});
    for (std::int64_t i = 0; i < l * s; ++i) {
      const std::int64_t row = i / s % 5, tile = i % s / 64;
      const bool masked = row == 0 ? tile == 0 : row == 1 ? tile != 3 : row == 2 ? tile % 2 == 0 : row == 3;
      mask.values<float>()[static_cast<std::size_t>(i)] = masked ? -inf : 0;
    }
    check_op({.op = "Attention",
              .opset = 23,
              .inputs = {random_f32({n, heads, l, 16}, 310), random_f32({n, heads, s, 16}, 311),
                         random_f32({n, heads, s, 16}, 312), mask},
              .maybe_constant = {3},
              .tolerance = float_tolerance,
              .half_tolerance = half_tolerance});
  }
}

// On CUDA in 16 bits powers are relative to a score that does not follow small growth.
TEST_CASE("attention/scores_that_grow_from_tile_to_tile") {
  unsigned seed = 700;
  for (const auto& [problems, heads, l] : {std::array{1, 1, 18}, {140, 2, 18}, {140, 1, 33}})
    for (const float growth : {0.05F, 4.0F, -4.0F}) {
      const std::int64_t n = problems_here(problems), s = 390, d = 24;
      Tensor k = random_f32({n, heads, s, d}, seed++, 0, 1);
      for (std::int64_t i = 0; i < k.elems(); ++i)
        k.values<float>()[static_cast<std::size_t>(i)] *= 1 + growth * static_cast<float>(i / d % s / 64);
      check_op({.op = "Attention",
                .opset = 23,
                .attributes = {{"scale", growth < 0 ? -0.5 : 0.5}},
                .inputs = {random_f32({n, heads, l, d}, seed++, 0, 1), k, random_f32({n, heads, s, d}, seed++, 0, 1)},
                .tolerance = 1e-5,  // scores up to 100
                .half_tolerance = 0.2});
    }
}

// What networks in bfloat16 mask with: a scale beyond 1 / log2(e) makes it overflow.
TEST_CASE("attention/masks_of_the_least_number") {
  const float least = -3.3895314e38F;
  for (const auto& [problems, heads, l] : {std::array{1, 1, 20}, {140, 2, 20}, {140, 1, 33}})
    for (const std::int64_t from : {0, 64}) {
      const std::int64_t n = problems_here(problems), s = 128;
      Tensor mask(DType::f32, Shape{l, s});
      for (std::int64_t i = 0; i < l * s; ++i)
        mask.values<float>()[static_cast<std::size_t>(i)] = i % s / 64 * 64 == from ? least : 0;
      check_op({.op = "Attention",
                .opset = 23,
                .attributes = {{"scale", 1.0}},
                .inputs = {random_f32({n, heads, l, 16}, 320), random_f32({n, heads, s, 16}, 321),
                           random_f32({n, heads, s, 16}, 322), mask},
                .maybe_constant = {3},
                .tolerance = float_tolerance,
                .half_tolerance = half_tolerance});
    }
}

TEST_CASE("attention/refusals") {
  OpCase c{.op = "Attention",
           .opset = 23,
           .inputs = {random_f32({2, 4, 3, 8}, 1), random_f32({2, 4, 5, 8}, 2), random_f32({2, 4, 5, 6}, 3)}};
  CHECK(refusal(c).empty());
  const Tensor past = random_f32({2, 4, 1, 8}, 4);
  SUBCASE("a cache") {
    c.inputs.insert(c.inputs.end(), {Tensor(), past, past});
    CHECK(refusal(c) == "input past_key is not supported");
    CHECK(infer_error(c) == ErrorKind::unsupported);
  }
  SUBCASE("lengths") {
    c.inputs.insert(c.inputs.end(), {Tensor(), Tensor(), Tensor(), past});
    CHECK(refusal(c) == "input nonpad_kv_seqlen is not supported");
  }
  SUBCASE("outputs of a cache") {
    c.outputs = 3;
    CHECK(refusal(c) == "outputs present_key, present_value and qk_matmul_output are not supported");
  }
  SUBCASE("attributes") {
    c.attributes = {{"is_causal", std::int64_t{1}}};
    CHECK(refusal(c) == "attribute 'is_causal' is not supported");
    c.attributes = {{"softcap", 2.0}};
    CHECK(refusal(c) == "attribute 'softcap' is not supported");
    // Only a pass may say where Q lies, and so on.
    for (const AttributeList& own : {AttributeList{{"sizes", Ints{2, 4, 3, 5, 8, 6}}}, {{"qk_norm_epsilon", 1e-12}}}) {
      c.attributes = own;
      CHECK(infer_error(c) == ErrorKind::unsupported);
    }
  }
  SUBCASE("grouped queries") {
    c.inputs[1] = random_f32({2, 2, 5, 8}, 2);
    CHECK(refusal(c) == "4 heads of Q and 2 of K and V; only equal numbers are supported");
  }
  SUBCASE("shapes") {
    c.inputs[1] = random_f32({2, 4, 5, 7}, 2);
    CHECK(refusal(c) == "input K has shape [2,4,5,7], expected [2,4,5,8]");
    c.inputs[1] = random_f32({2, 20, 8}, 2);
    CHECK(refusal(c) == "Q [2,4,3,8], K [2,20,8] and V [2,4,5,6] differ in rank");
    c.inputs = {random_f32({2, 3, 8}, 1), random_f32({2, 5, 8}, 2), random_f32({2, 5, 8}, 3)};
    CHECK(refusal(c) == "attribute 'q_num_heads' is missing, with a 3-D Q");
    c.attributes = {{"q_num_heads", std::int64_t{3}}, {"kv_num_heads", std::int64_t{3}}};
    CHECK(refusal(c) == "3 heads do not divide the channels of [2,3,8]");
  }
  SUBCASE("masks") {
    c.inputs.push_back(random_of(DType::boolean, {3, 5}, 5, 0, 1));
    CHECK(refusal(c) == "attn_mask of bool is not supported");
    c.inputs[3] = random_f32({3, 4}, 5);
    CHECK(refusal(c) == "attn_mask [3,4] with 5 keys; only one value for each key is supported");
    c.inputs[3] = random_f32({3, 4, 3, 5}, 5);
    CHECK(refusal(c) == "attn_mask has shape [3,4,3,5], which does not broadcast to [2,4,3,5]");
  }
  SUBCASE("what a pass states") {
    OpCase p = packed(2, 1, 5, 4, true, 6);
    CHECK(refusal(p).empty());
    p.inputs[0] = random_f32({2, 5, 11}, 6);
    CHECK(refusal(p) == "Q reaches element 111 of an input [2,5,11]");
    p = packed(2, 1, 5, 4, true, 6);
    p.attributes[6].second = Ints{2, 5, 5};
    CHECK(refusal(p) == "y [2,5,5] does not hold the rows of [2,1,5,4] once each");
    p = packed(2, 1, 5, 4, true, 6);
    p.attributes[5].second = Ints{0, 4, 0, 4};
    CHECK(refusal(p) == "y [2,5,4] does not hold the rows of [2,1,5,4] once each");
    for (const double epsilon : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
      p = packed(2, 1, 5, 4, true, 6);
      p.attributes.emplace_back("qk_norm_epsilon", epsilon);
      CHECK(infer_error(p) == ErrorKind::invalid_model);
    }
    p = packed(2, 3, 5, 4, true, 6);
    p.attributes.emplace_back("head_scales", std::vector<double>{1, 2});
    CHECK(refusal(p) == "attribute 'head_scales' has 2 values for 3 heads");
    p = packed(1, 65, 2, 1, true, 6);
    p.attributes.emplace_back("head_scales", std::vector<double>(65, 1.0));
    CHECK(refusal(p) == "attribute 'head_scales' has 65 values for 65 heads");
    p = packed(2, 1, 5, 4, true, 6);
    p.attributes[2].second = Ints{0, -1, 0, 0};
    CHECK(refusal(p) == "attribute 'q' is not 4 sizes");
  }
  SUBCASE("a table of rows") {
    OpCase p = packed(2, 1, 5, 4, true, 7);
    p.inputs.insert(p.inputs.end(), {Tensor(), table_of_rows(2, 5, 8)});
    CHECK(refusal(p) == "the table of rows is not known");
    p.constant = {4};
    CHECK(refusal(p).empty());
    for (const int wrong : {-1, 10, 3}) {
      p.inputs[4] = table_of_rows(2, 5, 8);
      p.inputs[4].values<std::int32_t>()[p.inputs[4].values<std::int32_t>()[0] == 3 ? 1 : 0] = wrong;
      CHECK(refusal(p) == "the table of rows does not name each of 10 once");
    }
    p.inputs[4] = table_of_rows(3, 5, 8);
    CHECK(refusal(p) == "a table of rows [3,5] with 2 problems of 5 tokens");
    p.inputs[4] = table_of_rows(2, 5, 8);
    p.attributes[3].second = Ints{4, 12, 4, 12};
    CHECK(refusal(p) == "a table of rows [2,5] with 2 problems of 5 tokens");
  }
}

}  // namespace lenslet::test
