// stem with fused 3x3 max pooling: refusals, plans and estimates. Needs no device.

#include <doctest/doctest.h>

#include <string>

#include "lenslet/error.h"
#include "ops/conv/conv.h"
#include "ops/core/choose.h"
#include "ops/core/kernel.h"
#include "tests/expect_error.h"

namespace lenslet::test {
namespace {

ConvProblem problem(std::int64_t n, std::int64_t k, std::int64_t window, std::int64_t pad, std::int8_t pool_pad,
                    DType storage = DType::f16) {
  ConvProblem p =
      resolve_conv({n, 3, 224, 224}, {k, 3, window, window}, {.stride = {2, 2}, .pads = {pad, pad, pad, pad}});
  p.bias = true;
  p.activation = {Activation::Kind::relu, 0, 0};
  p.storage = storage;
  p.max_pool = {3, 2, pool_pad, pool_pad, 0, 0};
  return p;
}

Offer offer(const ConvProblem& p) {
  const Kernel& stem = *find_kernel("Conv", DeviceKind::cuda, "stem");
  const auto posed = pose(p, Tensor(DType::f32, {p.k, p.c, p.r, p.s}));
  return stem.offer(*posed,
                    {.device = reference_gpu(), .numerics = parse_numerics(p.storage == DType::f32 ? "tf32" : "fp16")});
}

}  // namespace

TEST_CASE("stem_pool/other_windows_than_its_own_are_refused") {
  ConvProblem p = problem(1, 64, 7, 3, 1);
  CHECK(p.stored_p() == 56);
  CHECK(offer(p).refusal.empty());
  for (const MaxWindows& windows : {maxima_of_four, MaxWindows{3, 1, 1, 1, 1, 1}, MaxWindows{5, 2, 1, 1, 1, 1}}) {
    p.max_pool = windows;
    CHECK(offer(p).refusal == "it stores what it computes, not its maxima");
  }
}

TEST_CASE("stem_pool/configurations_of_no_kernel_are_refused") {
  const Kernel& stem = *find_kernel("Conv", DeviceKind::cuda, "stem");
  const ConvProblem p = problem(1, 64, 7, 3, 1);
  const Tensor w(DType::f32, {64, 3, 7, 7});
  const auto posed = pose(p, w);
  Candidate candidate = offer(p).candidates.at(0);
  (void)stem.bind({*posed, candidate, reference_gpu()});
  for (const auto& [config, why] :
       {std::pair{"", "'filters=' expected before ''"},
        {"filters=64 resident=4", "'tiles=' expected before ''"},
        {"filters=64 resident=4 tiles=0", "tiles is '0', a number from 1 to 1048576 expected"},
        {"filters=48 resident=4 tiles=1", "filters come in blocks of 32 or 64"},
        {"filters=64 resident=4 tiles=1 by=hand", "there is no such instruction"}}) {
    candidate.config = config;
    CHECK_ERROR(stem.bind({*posed, candidate, reference_gpu()}), invalid_argument, why);
  }
}

// The times are from an H100.
TEST_CASE("stem_pool/estimates_and_times") {
  struct Row {
    ConvProblem problem;
    double us;
  };
  const Row rows[] = {
      {problem(64, 64, 7, 3, 1), 88.4}, {problem(64, 64, 3, 0, 0), 67.1}, {problem(64, 24, 3, 1, 1), 64.9}};
  for (const Row& row : rows) {
    const Candidate candidate = offer(row.problem).candidates.at(0);
    const double us = candidate.estimated_us;
    CHECK_MESSAGE((us > 0.7 * row.us && us < 1.4 * row.us), row.problem.str(), ", ", candidate.config, ": ", us,
                  " us, measured ", row.us);
  }
}

}  // namespace lenslet::test
