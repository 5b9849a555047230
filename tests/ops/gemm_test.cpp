// The packed product compared with sums in double, on every instruction set of this CPU.
#include "ops/gemm/gemm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/simd/targets.h"
// After targets.h:
#include <hwy/highway.h>

#include "tests/ops/exact_activation.h"
#include "tests/ops/for_each_target.h"

namespace lenslet {
namespace {

constexpr float guard = 1234.5f;

std::vector<float> random_floats(std::mt19937& random, std::int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(random);
  return values;
}

/// A product with its epilogue.
struct Case {
  std::int64_t m, n, k;
  Activation activation;
  bool bias = false, residual = false, in_place = false, accumulate = false;
  std::int64_t partial_length = 0;
};

/// Element e of row i of A, according to the descriptor.
float element(const GemmRows& a, std::int64_t k, std::int64_t i, std::int64_t e) {
  std::int64_t offset = 0;
  if (a.width == 0) {
    offset = i * a.stride;
  } else {
    const std::int64_t line = i / a.width;
    offset = i % a.width * a.stride;
    offset += a.height == 0 ? line * a.line_stride : line / a.height * a.image_stride + line % a.height * a.line_stride;
  }
  const std::int64_t length = a.segments == nullptr ? std::max<std::int64_t>(k, 1) : k / a.segment_count;
  return a.base[offset + (a.segments == nullptr ? 0 : a.segments[e / length]) + e % length];
}

/// Runs the case serially and on pools; checks values, guards, and equal bits.
void check(const Case& c, const GemmRows& a, std::int64_t ldc, std::mt19937& random) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  CAPTURE(ldc);
  CAPTURE(to_string(c.activation));
  const std::vector<float> b = random_floats(random, c.k * c.n), bias = random_floats(random, c.n);
  std::vector<float> residual = random_floats(random, c.m * ldc);
  std::vector<float> packed(static_cast<std::size_t>(packed_b_floats(c.k, c.n)) + 16, guard);
  pack_b(b.data(), c.n, 1, c.k, c.n, packed.data());
  REQUIRE(std::all_of(packed.end() - 16, packed.end(), [](float v) { return v == guard; }));
  {  // B^T through strides gives the same panels
    std::vector<float> transposed(b.size()), again(packed.size(), guard);
    for (std::int64_t i = 0; i < c.k; ++i)
      for (std::int64_t j = 0; j < c.n; ++j)
        transposed[static_cast<std::size_t>(j * c.k + i)] = b[static_cast<std::size_t>(i * c.n + j)];
    pack_b(transposed.data(), 1, c.k, c.k, c.n, again.data());
    CHECK(again == packed);
  }

  // C between guards; poisoned, or holding the addend.
  constexpr std::int64_t margin = 40;
  std::vector<float> start(static_cast<std::size_t>(c.m * ldc + 2 * margin), guard);
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j)
      start[static_cast<std::size_t>(margin + i * ldc + j)] = c.accumulate || c.in_place
                                                                  ? residual[static_cast<std::size_t>(i * ldc + j)]
                                                                  : std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out = start;
  Gemm g;
  g.m = c.m;
  g.n = c.n;
  g.k = c.k;
  g.a = a;
  g.b = packed.data();
  g.c = out.data() + margin;
  g.ldc = ldc;
  g.accumulate = c.accumulate;
  g.partial_length = c.partial_length;
  g.bias = c.bias ? bias.data() : nullptr;
  g.residual = c.in_place ? g.c : (c.residual ? residual.data() : nullptr);
  g.activation = c.activation;
  gemm_serial(g);

  const bool adds = c.residual || c.in_place || c.accumulate;
  const auto exact_of = test::exact_activation(c.activation);
  std::vector<float> rows;
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t e = 0; e < c.k; ++e) rows.push_back(element(a, c.k, i, e));
  std::int64_t outside = 0, wrong = 0;
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(out.size()); ++at) {
    const std::int64_t i = (at - margin) / ldc, j = (at - margin) % ldc;
    const float got = out[static_cast<std::size_t>(at)];
    if (at < margin || i >= c.m || j >= c.n) {
      outside += got != guard;
      continue;
    }
    double sum = c.bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0.0;
    if (adds) sum += residual[static_cast<std::size_t>(i * ldc + j)];
    double terms = std::abs(sum);
    for (std::int64_t e = 0; e < c.k; ++e) {
      const double term =
          double{rows[static_cast<std::size_t>(i * c.k + e)]} * b[static_cast<std::size_t>(e * c.n + j)];
      sum += term;
      terms += std::abs(term);
    }
    // The bound for any order of summation, k + 4 roundings of 2^-24; no activation is steeper than 1.5, and exp and
    // its quotient cost slightly more.
    const double exact = exact_of(sum);
    const double bound = 1.5 * static_cast<double>(c.k + 4) * std::ldexp(terms, -24) + 5e-7 * std::abs(exact);
    if (std::abs(got - exact) <= bound) continue;
    if (wrong++ > 0) continue;
    CAPTURE(i);
    CAPTURE(j);
    CAPTURE(exact);
    CHECK(got == doctest::Approx(exact));
  }
  CHECK(wrong == 0);
  CHECK(outside == 0);

  static ThreadPool pools[] = {ThreadPool(2), ThreadPool(3)};
  for (ThreadPool& pool : pools) {
    std::vector<float> other = start;
    g.c = other.data() + margin;
    if (c.in_place) g.residual = g.c;
    gemm(g, pool);
    CAPTURE(pool.threads());
    CHECK(std::memcmp(other.data(), out.data(), out.size() * sizeof(float)) == 0);
  }
}

void check_plain(const Case& c, std::mt19937& random) {
  const std::int64_t lda = c.k + 3;
  const std::vector<float> a = random_floats(random, c.m * lda);
  GemmRows rows;
  rows.base = a.data();
  rows.stride = lda;
  check(c, rows, c.n, random);
  check(c, rows, c.n + 5, random);
}

TEST_CASE("gemm/awkward_sizes") {
  test::for_each_target(HWY_TARGETS, [] {
    std::mt19937 random(1);
    for (const std::int64_t m : {1, 2, 3, 5, 6, 7, 11, 12, 13, 193})
      for (const std::int64_t n : {1, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 33})
        for (const std::int64_t k : {1, 2, 3, 5, 17}) check_plain({m, n, k, {}}, random);
  });
}

TEST_CASE("gemm/blocks_of_k_rows_and_threads") {
  test::for_each_target(HWY_TARGETS, [] {
    std::mt19937 random(2);
    const Activation relu{Activation::Kind::relu, 0, 0};
    for (const Case& c : {Case{1, 1000, 700, {}, true}, Case{4, 130, 1030, relu, true, true}, Case{200, 40, 257, relu},
                          Case{385, 20, 64, relu, true, true}, Case{50, 250, 513, {}, true, false, true}})
      check_plain(c, random);
  });
}

TEST_CASE("gemm/epilogues") {
  using Kind = Activation::Kind;
  test::for_each_target(HWY_TARGETS, [] {
    std::mt19937 random(3);
    for (const Activation& activation :
         {Activation{}, Activation{Kind::relu, 0, 0}, Activation{Kind::clip, 0, 6},
          Activation{Kind::leaky_relu, 0.1f, 0}, Activation{Kind::sigmoid, 0, 0}, Activation{Kind::silu, 0, 0},
          Activation{Kind::hard_swish, 1.0f / 6, 0.5f}, Activation{Kind::hard_sigmoid, 0.2f, 0.5f}}) {
      for (const std::int64_t k : {30, 300})  // one block of k and two: the activation follows the last
        for (const std::int64_t n : {16, 21, 64}) {
          check_plain({25, n, k, activation, true, false}, random);
          check_plain({25, n, k, activation, false, true}, random);
          check_plain({25, n, k, activation, true, false, true}, random);
          check_plain({25, n, k, activation, true, false, false, true}, random);
        }
    }
  });
}

TEST_CASE("gemm/nothing_to_sum") {
  std::mt19937 random(4);
  const Activation relu{Activation::Kind::relu, 0, 0};
  check_plain({7, 19, 0, relu, true}, random);
  check_plain({7, 19, 0, {}, false, true}, random);
  check_plain({0, 19, 5, {}}, random);
}

TEST_CASE("gemm/nan_and_inf_pass") {
  // 0 * inf is NaN by the definition, and a fused activation must not hide it.
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> a{1, 0, inf, 1}, b{0, inf};  // rows: 1*0+0*inf, inf*0+1*inf
  std::vector<float> packed(static_cast<std::size_t>(packed_b_floats(2, 1))), c(2);
  pack_b(b.data(), 1, 1, 2, 1, packed.data());
  Gemm g;
  g.m = 2;
  g.n = 1;
  g.k = 2;
  g.a.base = a.data();
  g.a.stride = 2;
  g.b = packed.data();
  g.c = c.data();
  g.ldc = 1;
  g.activation = {Activation::Kind::relu, 0, 0};
  gemm_serial(g);
  CHECK(std::isnan(c[0]));
  CHECK(std::isnan(c[1]));
}

TEST_CASE("gemm/an_element_depends_on_its_row_and_column_alone") {
  // Equal rows times equal columns give one value at every position and in products of every size. Networks need it:
  // equal classes must get equal scores, and an image's result must not depend on its position in a batch.
  test::for_each_target(HWY_TARGETS, [] {
    std::mt19937 random(6);
    ThreadPool pool(3);
    for (const std::int64_t k : {5, 17, 300, 700})
      for (const std::int64_t partial_length : {0, 7}) {
        const std::vector<float> row = random_floats(random, k), column = random_floats(random, k);
        std::vector<float> first;  // the value, from a 1x1 product
        for (const std::int64_t m : {1, 2, 3, 4, 7, 8, 9, 13, 23, 49, 193, 241})
          for (const std::int64_t n : {1, 4, 7, 8, 12, 15, 16, 17, 24, 40, 63, 72, 150}) {
            std::vector<float> a, b, c(static_cast<std::size_t>(m * n)), bias(static_cast<std::size_t>(n), 0.3F);
            for (std::int64_t i = 0; i < m; ++i) a.insert(a.end(), row.begin(), row.end());
            for (const float v : column) b.insert(b.end(), static_cast<std::size_t>(n), v);
            std::vector<float> packed(static_cast<std::size_t>(packed_b_floats(k, n)));
            pack_b(b.data(), n, 1, k, n, packed.data());
            Gemm g;
            g.m = m;
            g.n = n;
            g.k = k;
            g.a.base = a.data();
            g.a.stride = k;
            g.b = packed.data();
            g.c = c.data();
            g.ldc = n;
            g.bias = bias.data();
            g.activation.kind = partial_length == 0 ? Activation::Kind::silu : Activation::Kind::none;
            g.partial_length = partial_length;
            for (const bool threaded : {false, true}) {
              std::ranges::fill(c, std::numeric_limits<float>::quiet_NaN());
              if (threaded)
                gemm(g, pool);
              else
                gemm_serial(g);
              if (first.empty()) first.assign(1, c[0]);
              CAPTURE(m);
              CAPTURE(n);
              CAPTURE(k);
              CAPTURE(threaded);
              CHECK(std::ranges::count(c, first[0]) == m * n);
            }
          }
      }
  });
}

TEST_CASE("gemm/partial_sums") {
  test::for_each_target(HWY_TARGETS, [] {
    std::mt19937 random(7);
    for (const std::int64_t m : {1, 2, 3, 7, 30})
      for (const std::int64_t n : {7, 33, 130})
        for (const std::int64_t k : {31, 32, 33, 64, 100, 300})
          check_plain({m, n, k, {}, true, true, false, false, 32}, random);
  });
}

TEST_CASE("gemm/rows_of_an_image") {
  // Windows of 3 lines x 2 pixels over two images of 9x11x5, every second pixel of every line: the rows overlap, each
  // in three segments. Also segments longer than a block of k.
  test::for_each_target(HWY_TARGETS, [] {
    std::mt19937 random(5);
    for (const std::int64_t channels : {5, 150}) {
      const std::int64_t height = 9, width = 11, lines = height - 2, pixels = 5;
      const std::vector<float> image = random_floats(random, 2 * height * width * channels);
      const std::vector<std::int64_t> segments{0, width * channels, 2 * width * channels};
      GemmRows a;
      a.base = image.data();
      a.stride = 2 * channels;
      a.width = pixels;
      a.line_stride = width * channels;
      a.height = lines;
      a.image_stride = height * width * channels;
      a.segments = segments.data();
      a.segment_count = 3;
      check({2 * lines * pixels, 20, 3 * 2 * channels, {}, true}, a, 23, random);
      a.segments = nullptr;  // one line of the window
      a.segment_count = 1;
      check({2 * lines * pixels, 20, 2 * channels, {}, true}, a, 20, random);
    }
  });
}

}  // namespace
}  // namespace lenslet
