// Det.

#include <doctest/doctest.h>

#include <limits>

#include "base/device_profile.h"
#include "ops/core/kernel.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {

TEST_CASE("det/of_any_size_and_rank_is_the_oracles") {
  const auto check = [](const Tensor& x) { check_op({.op = "Det", .opset = 11, .inputs = {x}}); };
  for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 8, 31, 32, 33, 70}) check(random_f32({3, n, n}, 1));
  check(random_f32({7, 7}, 2));
  check(random_f32({2, 3, 4, 3, 3}, 3));
  check(random_f32({0, 3, 3}, 4));
  check(random_f32({40, 30, 3, 3}, 5));
  // Rows that depend on each other; a zero where the first pivot would be.
  check(Tensor::of<float>(Shape{2, 3, 3}, {1, 2, 3, 2, 4, 6, 7, 8, 9, 0, 1, 2, 3, 0, 4, 5, 6, 0}));
  // A NaN or an infinity makes NaN of its own matrix.
  Tensor x = random_f32({20, 3, 3}, 6);
  for (std::size_t i = 0; i < 9; ++i) {
    x.values<float>()[i * 9 + i] = std::numeric_limits<float>::quiet_NaN();
    x.values<float>()[(9 + i) * 9 + i] = std::numeric_limits<float>::infinity();
  }
  check(x);
}

TEST_CASE("det/refusals") {
  const std::vector<InputInfo> x{{.present = true, .type = {DType::f32, Shape{std::int64_t{1} << 31, 1, 1}}}};
  const auto op = make_op({.op = "Det", .opset = 11, .inputs = {random_f32({1, 1}, 1)}});
  const Problem problem(op, x, infer_types(*op, x));
  CHECK(find_kernel("Det", DeviceKind::cuda, "cuda")->offer(problem, {.device = reference_gpu()}).refusal ==
        "2^31 matrices or more");
  CHECK(infer_error({.op = "Det", .opset = 11, .inputs = {random_f32({2, 3}, 1)}}) == ErrorKind::invalid_model);
  CHECK(infer_error({.op = "Det", .opset = 11, .inputs = {random_f32({3}, 1)}}) == ErrorKind::unsupported);
  CHECK(infer_error({.op = "Det", .opset = 10, .inputs = {random_f32({3, 3}, 1)}}) == ErrorKind::unsupported);
}

}  // namespace lenslet::test
