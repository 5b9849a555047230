// stem with fused 3x3 max pooling: compared with the oracle, and the same bits as a pool of stem's outputs.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

/// Max pooling of stored outputs, NCHW.
Tensor maxima(const Tensor& x, const ConvProblem& p) {
  Tensor y(DType::f32, {p.n, p.k, p.stored_p(), p.stored_q()});
  float* to = y.values<float>().data();
  for (std::int64_t plane = 0; plane < p.n * p.k; ++plane)
    for (std::int64_t row = 0; row < p.stored_p(); ++row)
      for (std::int64_t column = 0; column < p.stored_q(); ++column) {
        float most = -std::numeric_limits<float>::infinity();
        const std::int64_t top = 2 * row - p.max_pool.pad_top, left = 2 * column - p.max_pool.pad_left;
        for (std::int64_t h = std::max<std::int64_t>(0, top); h < std::min(top + 3, p.p); ++h)
          for (std::int64_t w = std::max<std::int64_t>(0, left); w < std::min(left + 3, p.q); ++w) {
            const float value = x.values<float>()[static_cast<std::size_t>((plane * p.p + h) * p.q + w)];
            if (value > most || std::isnan(value)) most = value;
          }
        *to++ = most;
      }
  return y;
}

/// Runs as planned, with walks of other lengths, and by mma.sync; `data` may contain NaN and infinities.
void check(const ConvProblem& p, const ConvData& data, unsigned seed, bool exact) {
  ConvProblem apart = p;
  apart.max_pool = {};
  const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
  const auto run = [&](const ConvProblem& problem, const std::string& config) {
    const auto posed = pose(problem, data.w, data.scale);
    const OnDevice stem(kernel_named("Conv", "stem"), *posed, numerics_of(p.storage), inputs,
                        fmt::format("{} (seed {})", problem.str(), seed));
    const OnDevice::Ran ran = stem.run(config);
    if (exact && problem.max_pool) compare(ran.y, data, stem.planned().tolerance, ran.where);
    return ran.y.to_format(formats::nchw).to_dtype(DType::f32);
  };
  for (const char* const by : {"", " by=wgmma"}) {
    const std::int64_t filters = p.k <= 32 ? 32 : 64;
    const Tensor wanted = maxima(run(apart, fmt::format("filters={} resident=4{}", filters, by)), p);
    for (const std::int64_t tiles : {0, 1, 2, 3, 100}) {
      const std::string config =
          tiles == 0 ? "" : fmt::format("filters={} resident={} tiles={}{}", filters, tiles % 3 + 1, tiles, by);
      if (config.empty() && *by == 0) continue;
      const Tensor got = run(p, config);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < got.values<float>().size(); ++i) {
        const float a = got.values<float>()[i], b = wanted.values<float>()[i];
        wrong += a == b || (std::isnan(a) && std::isnan(b)) ? 0 : 1;
      }
      CHECK_MESSAGE(wrong == 0, p.str(), ", ", config, ", seed ", seed, ": ", wrong, " of ",
                    got.values<float>().size());
    }
  }
}

ConvProblem problem(std::int64_t n, std::int64_t size, std::int64_t k, std::int64_t window, std::int64_t stride,
                    std::int64_t pad, std::int8_t pool_pad, std::int8_t pool_end) {
  ConvProblem p = parse_conv(
      fmt::format("{}x3x{}x{} -> {}, {}x{} s{} p{} g1 +bias +relu", n, size, size + 3, k, window, window, stride, pad));
  p.max_pool = {3, 2, pool_pad, pool_pad, pool_end, pool_end};
  return p;
}

const DType types[] = {DType::f16, DType::bf16, DType::f32};

ConvProblem stored(ConvProblem p, DType storage, bool floats) {
  p.storage = storage;
  p.x_storage = floats ? DType::f32 : storage;
  return p;
}

}  // namespace

// First layers of networks.
TEST_CASE("cuda/stem_pool/networks") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  const std::int64_t size = reduced() ? 61 : 224;
  for (const ConvProblem& of :
       {problem(2, size, 64, 7, 2, 3, 1, 1), problem(1, size, 64, 3, 2, 0, 0, 1), problem(3, size, 24, 3, 2, 1, 1, 1)})
    for (const DType type : types)
      for (const bool floats : {false, true}) {
        if (floats && (type == DType::f32 || reduced())) continue;
        const ConvProblem p = stored(of, type, floats);
        check(p, make_conv_data(p, random), seed, true);
      }
}

TEST_CASE("cuda/stem_pool/drawn") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const Activation activations[] = {
      {}, {Activation::Kind::relu, 0, 0}, {Activation::Kind::clip, -0.5F, 6}, {Activation::Kind::silu, 0, 0}};
  for (int i = 0; i < (reduced() ? 9 : 90); ++i) {
    ConvGeometry geometry;
    geometry.stride = {between(1, 3), between(1, 3)};
    for (std::int64_t& pad : geometry.pads) pad = between(0, 2);
    const std::int64_t r = between(1, 7), s = between(1, 7), c = between(1, 4);
    const std::int64_t k = between(0, 2) == 0 ? between(1, 100) : 8 * between(1, 16);
    ConvProblem p = resolve_conv({between(1, 4), c, between(7, 60), between(7, 60)}, {k, c, r, s}, geometry);
    p.bias = between(0, 3) != 0;
    p.activation = activations[between(0, 3)];
    const auto pad = [&] { return static_cast<std::int8_t>(between(0, 2)); };
    p.max_pool = {3, 2, pad(), pad(), pad(), pad()};
    if (p.p + p.max_pool.pad_top + p.max_pool.pad_bottom < 3 || p.q + p.max_pool.pad_left + p.max_pool.pad_right < 3)
      continue;
    p = stored(p, types[i % 3], i % 2 == 0);
    check(p, make_conv_data(p, random), seed, true);
  }
}

// A NaN reaches all maxima of its windows. The first channel has none: an element of it beside a window may be
// multiplied by zero, depending on where tiles end.
TEST_CASE("cuda/stem_pool/nan_and_infinity") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  for (const DType type : types) {
    const ConvProblem p = stored(problem(2, 61, 64, 7, 2, 3, 1, 1), type, true);
    ConvData data = make_conv_data(p, random);
    auto values = data.x.values<float>();
    const auto plane = static_cast<std::size_t>(p.h * p.w);
    const auto place = [&] { return (random() % 2 * 3 + 1 + random() % 2) * plane + random() % plane; };
    for (int i = 0; i < 5; ++i) {
      values[place()] = std::numeric_limits<float>::quiet_NaN();
      values[place()] = std::numeric_limits<float>::infinity();
    }
    check(p, data, seed, false);
  }
}

}  // namespace lenslet::test
