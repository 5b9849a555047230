// grouped_tf32 cut in every way there is, and how it rounds: the planner takes one way a problem, conv_test.cpp checks
// that.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "ops/conv/conv.h"
#include "ops/conv/cuda/grouped_tf32_plan.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

constexpr Numerics tf32{.multiply = Numerics::Multiply::tf32};

const Kernel& grouped_tf32() { return *find_kernel("Conv", DeviceKind::cuda, "grouped_tf32"); }

ConvProblem problem(const Shape& x, std::int64_t group, std::int64_t r, std::int64_t s, ConvGeometry geometry,
                    Activation activation = {}) {
  geometry.groups = x[1] / group;
  ConvProblem p = resolve_conv(x, {x[1], group, r, s}, geometry);
  p.bias = true;
  p.activation = activation;
  return p;
}

Tensor computed(const ConvProblem& p, const Problem& posed, const Tensor& x, const Tensor& w) {
  const DeviceProfile device = op_runner().profiles(1).at(0);
  const Offer offer = grouped_tf32().offer(posed, {.device = device, .numerics = tf32});
  REQUIRE_MESSAGE(offer.refusal.empty(), offer.refusal);
  const Call call{.problem = posed, .kernel = grouped_tf32(), .candidate = offer.candidates.at(0), .device = device};
  const Tensor inputs[] = {x, w, Tensor(), Tensor()};
  return run_between_guards(op_runner(), call, inputs, p.str()).at(0);
}

}  // namespace

TEST_CASE("cuda/grouped_tf32/every_cut") {
  const unsigned seed = random_seed();
  const DeviceProfile device = op_runner().profiles(1).at(0);
  const ConvGeometry same{.pads = {1, 1, 1, 1}}, half{.stride = {2, 2}, .pads = {1, 1, 1, 1}};
  const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};
  // Groups of every width; tiles and blocks of channels in part; strides that are known and others, dilations, windows
  // of other heights, pads of different width; more blocks than multiprocessors.
  ConvProblem problems[] = {
      problem({2, 72, 19, 21}, 4, 3, 3, same, relu),
      problem({1, 136, 33, 18}, 8, 3, 3, half, silu),
      problem({1, 72, 11, 9}, 12, 3, 3, same),
      problem({2, 160, 14, 14}, 16, 3, 3, same, relu),
      problem({1, 168, 15, 33}, 24, 3, 3, half, relu),
      problem({3, 160, 7, 7}, 32, 3, 3, same, silu),
      problem({1, 120, 10, 9}, 20, 3, 3, half, relu),
      problem({2, 112, 7, 9}, 56, 3, 3, same),
      problem({1, 144, 9, 17}, 48, 3, 3, half),
      problem({1, 192, 14, 14}, 64, 3, 3, same, relu),
      problem({1, 48, 20, 23}, 16, 5, 3, {.stride = {3, 2}, .dilation = {1, 2}, .pads = {2, 1, 0, 3}}, relu),
      problem({1, 64, 13, 40}, 8, 1, 2, {.stride = {2, 3}}),
      problem({40, 128, 17, 17}, 4, 3, 3, same, relu),
  };
  for (std::size_t i = 0; i < std::size(problems); ++i) {
    ConvProblem& p = problems[i];
    p.residual = i % 2 == 1;
    std::mt19937 random(seed);
    const ConvData data = make_conv_data(p, random);
    const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
    const auto posed = pose(p, data.w, data.scale);
    const Offer offer = grouped_tf32().offer(*posed, {.device = device, .numerics = tf32});
    REQUIRE_MESSAGE(offer.refusal.empty(), p.str(), ": ", offer.refusal);
    Candidate candidate = offer.candidates.at(0);
    Tensor first;
    for (const GroupedTf32Cut& cut : grouped_tf32_cuts(p)) {
      if (device.refuse_shared(cut.shared_bytes())) continue;
      candidate.config = cut.str();
      const std::string where = fmt::format("{} (seed {}, {})", p.str(), seed, candidate.config);
      const Call call{.problem = *posed, .kernel = grouped_tf32(), .candidate = candidate, .device = device};
      const Tensor y = run_between_guards(op_runner(), call, inputs, where).at(0);
      compare(y, data, candidate.tolerance, where);
      if (first.empty()) first = y;
      CHECK_MESSAGE(std::memcmp(first.data(), y.data(), y.bytes()) == 0, where, ": other bits than another cut's");
    }
  }
}

TEST_CASE("cuda/grouped_tf32/windows_are_rounded_to_nearest") {
  // Filters that are ones on the diagonal of their middle tap: y is x as it was multiplied.
  ConvProblem p = problem({2, 64, 12, 12}, 16, 3, 3, {.pads = {1, 1, 1, 1}});
  p.bias = false;
  Tensor w(DType::f32, {p.k, p.group_c(), 3, 3});
  std::fill(w.values<float>().begin(), w.values<float>().end(), 0.0F);
  for (std::int64_t k = 0; k < p.k; ++k)
    w.values<float>()[static_cast<std::size_t>((k * p.group_c() + k % p.group_k()) * 9 + 4)] = 1;
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor x(DType::f32, {p.n, p.c, p.h, p.w});
  for (float& value : x.values<float>()) value = normal(random);
  const auto posed = pose(p, w);
  const Tensor y = computed(p, *posed, x, w);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.values<float>().size(); ++i) {
    // The nearest number of 10 mantissa bits; of two, either.
    const double exact = x.values<float>()[i], got = y.values<float>()[i];
    const bool short_enough = (std::bit_cast<std::uint32_t>(y.values<float>()[i]) & 0x1FFFU) == 0;
    if (!short_enough || !(std::abs(got - exact) <= std::ldexp(1, std::ilogb(exact) - 11))) ++wrong;
  }
  CHECK_MESSAGE(wrong == 0, p.str(), ", seed ", seed);
}

}  // namespace lenslet::test
