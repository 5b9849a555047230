// Comparisons of `check`, and names and conversions of `run`: each decision both ways.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "oracle/oracle.h"
#include "photos/dtype_convert.h"
#include "tests/shared_data.h"
#include "tools/verbs/compare.h"
#include "tools/verbs/output_name.h"
#include "tools/verbs/test_cases.h"

using namespace lenslet;
using namespace lenslet::tool;

namespace {

std::string float_difference(std::initializer_list<float> actual, std::initializer_list<float> expected) {
  const Shape shape{static_cast<std::int64_t>(actual.size())};
  return difference(Tensor::of<float>(shape, actual), Tensor::of<float>(shape, expected), Tolerance{});
}

}  // namespace

TEST_CASE("check/floats") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  CHECK(float_difference({1, 2}, {1, 2}).empty());
  CHECK(float_difference({1.0009F, 2}, {1, 2}).empty());
  CHECK(float_difference({1.0011F, 2}, {1, 2}) != "");
  // atol is relative to the rms of the expected values, here about 707: 0.007 beside a zero passes and 0.0072 does not.
  CHECK(float_difference({0.007F, 1000}, {0, 1000}).empty());
  CHECK(float_difference({0.0072F, 1000}, {0, 1000}) != "");
  CHECK(float_difference({nan, inf, -inf, 1}, {nan, inf, -inf, 1}).empty());
  CHECK(float_difference({inf}, {-inf}) != "");
  CHECK(float_difference({nan}, {1}) != "");
  CHECK(float_difference({1}, {nan}) != "");
  CHECK(float_difference({1}, {inf}) != "");
  // The message has values, index and count.
  const std::string message = float_difference({1, 5, 2}, {1, 2, 2});
  CHECK(message.find("1 of 3") != std::string::npos);
  CHECK(message.find("[1]: 5 where 2") != std::string::npos);
}

TEST_CASE("check/types_shapes_and_integers") {
  const auto a = Tensor::of<std::int64_t>(Shape{2}, {1, 1LL << 60});
  CHECK(difference(a, Tensor::of<std::int64_t>(Shape{2}, {1, 1LL << 60}), {}).empty());
  CHECK(difference(a, Tensor::of<std::int64_t>(Shape{2}, {1, (1LL << 60) + 1}), {}) != "");
  CHECK(difference(a, Tensor::of<std::int64_t>(Shape{1, 2}, {1, 1LL << 60}), {}).find("shape [2]") == 0);
  CHECK(difference(a, Tensor::of<std::int32_t>(Shape{2}, {1, 1}), {}).find("type int64") == 0);
  CHECK(index_text(Shape{2, 3, 4}, 23) == "[1,2,3]");
  CHECK(index_text(Shape{}, 0) == "[]");
}

TEST_CASE("check/two_units_of_bfloat16") {
  const auto brain = [](float value) { return Tensor::of<float>(Shape{1}, {value}).to_dtype(DType::bf16); };
  CHECK(difference(brain(1.015625F), brain(1), {}).empty());
  CHECK_FALSE(difference(brain(1.0234375F), brain(1), {}).empty());
  CHECK_FALSE(difference(brain(1.0078125F), brain(1), {.rtol = 0, .atol = 0}).empty());
}

TEST_CASE("check/half_precision_round_trip") {
  // Every half converts back to itself, a NaN to a quiet one.
  Tensor halves(DType::f16, Shape{0x10000});
  auto* const bits = static_cast<std::uint16_t*>(halves.data());
  std::iota(bits, bits + 0x10000, std::uint16_t{0});
  const std::vector<double> values = oracle::from_tensor(halves).values;
  const Tensor back = photos::convert_float(photos::convert_float(halves, DType::f64), DType::f16);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t got = static_cast<const std::uint16_t*>(back.data())[i];
    REQUIRE(got == (std::isnan(values[i]) ? i | 0x0200U : i));
  }
  CHECK(values[0x3555] == doctest::Approx(1.0 / 3).epsilon(1e-3));
  const auto to_half = [](double value) {
    const Tensor half = photos::convert_float(Tensor::of<double>(Shape{1}, {value}), DType::f16);
    return *static_cast<const std::uint16_t*>(half.data());
  };
  CHECK(to_half(65519.9) == 0x7BFF);
  CHECK(to_half(65520.0) == 0x7C00);
  CHECK(to_half(1.0 + std::ldexp(1.0, -11)) == 0x3C00);  // a tie, to even
  CHECK(to_half(1.0 + 3 * std::ldexp(1.0, -11)) == 0x3C02);
  CHECK(to_half(std::ldexp(1.0, -25)) == 0);
  CHECK(to_half(std::ldexp(1.5, -25)) == 1);
  const Tensor brain = photos::convert_float(Tensor::of<float>(Shape{2}, {1.00390625F, -3}), DType::bf16);
  CHECK(oracle::from_tensor(brain).values == std::vector<double>{1, -3});  // the first a tie, to even
}

TEST_CASE("run/output_file_names") {
  OutputNames names;
  CHECK(names.file_name("prob") == "prob.npy");
  CHECK(names.file_name("prob") == "prob_2.npy");
  CHECK(names.file_name("../../etc/passwd") == "_._.._etc_passwd.npy");
  CHECK(names.file_name("a/b:0") == "a_b_0.npy");
  CHECK(names.file_name("") == "output.npy");
  CHECK(names.file_name("-x") == "_x.npy");
  CHECK(names.file_name(std::string(5000, 'n')).size() <= 128);
}

TEST_CASE("check/shared_cases") {
  LENSLET_REQUIRE_SHARED(folder, "generated-ops");
  const auto cases = find_cases(folder);
  CHECK(cases.size() == 126);
  PlanOptions options;
  options.threads = 2;
  options.device = "cpu";
  int passed = 0;
  for (const auto& path : cases) {
    const CaseResult result = run_case(path, options, Tolerance{});
    CHECK_MESSAGE(result.status != CaseResult::Status::failed, path.filename().string(), ": ", result.reason);
    passed += result.status == CaseResult::Status::passed ? 1 : 0;
  }
  CHECK(passed >= 100);
  // The comparison works: with no tolerance some case with real arithmetic must fail.
  int failed = 0;
  for (const auto& path : cases)
    failed += run_case(path, options, Tolerance{.rtol = 0, .atol = 0}).status == CaseResult::Status::failed ? 1 : 0;
  CHECK(failed > 0);
}
