#include <doctest/doctest.h>

#include <limits>
#include <string_view>

#include "ops/core/broadcast.h"
#include "ops/core/kernel.h"
#include "ops/elementwise/binary_kinds.h"
#include "ops/elementwise/logic.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

struct Kind {
  const char* name;
  std::int64_t opset;
  DTypeSet types;
};
#define LENSLET_KIND(NAME, VERSION, MOST, TYPES, ...) {#NAME, VERSION > 14 ? VERSION : 14, dtypes<TYPES>},
constexpr Kind kinds[] = {LENSLET_BINARY_KINDS(LENSLET_KIND){"Sum", 14, dtypes<RealTypes>},
                          {"Mean", 14, dtypes<RealTypes>}};
#undef LENSLET_KIND

struct LogicRow {
  const char* name;
  int inputs;
  DTypeSet types;
};
#define LENSLET_KIND(NAME, VERSION, INPUTS, TYPES, ...) {#NAME, INPUTS, dtypes<TYPES>},
constexpr LogicRow logic_table[] = {LENSLET_LOGIC_KINDS(LENSLET_KIND)};
#undef LENSLET_KIND

struct Shapes {
  Shape a, b;
};

// Same, scalar, per channel, per image and channel, per column, per channel and row or column, lower rank, both sides
// broadcast, more than 4 dimensions, long enough for two threads, empty.
const Shapes shapes[] = {
    {{2, 3, 5, 7}, {2, 3, 5, 7}},
    {{2, 3, 5, 7}, {}},
    {{}, {2, 3, 5, 7}},
    {{2, 9, 5, 7}, {1, 9, 1, 1}},
    {{2, 17, 3, 7}, {17, 1, 1}},
    {{3, 16, 5, 7}, {3, 16, 1, 1}},
    {{2, 3, 5, 7}, {7}},
    {{2, 3, 5, 7}, {3, 5, 1}},
    {{2, 3, 5, 7}, {3, 1, 7}},
    {{2, 3, 1, 7}, {1, 3, 5, 1}},
    {{1, 4, 1, 1}, {2, 1, 3, 3}},
    {{5}, {3, 1, 1, 5}},
    {{2, 1, 3, 4, 5}, {6, 1, 4, 1}},
    {{1, 31, 37, 29}, {31, 1, 1}},
    {{40000}, {40000}},
    {{0, 3}, {1, 3}},
    {{2, 3, 5, 7}, {2, 1, 5, 7}},
    {{1}, {1}},
    {{1, 8, 1, 1}, {8, 1, 1}},
};

}  // namespace

TEST_CASE("binary/broadcast_as_numpy_does") {
  unsigned seed = 100;
  for (const auto& [op, opset, types] : kinds)
    for (const Shapes& s : shapes) {
      if (!types.contains(DType::f32)) continue;
      if (std::string_view(op) == "PRelu" && !(broadcast_shapes(s.a, s.b) == s.a)) continue;
      const Tensor a = random_f32(s.a, seed++), b = random_of(DType::f32, s.b, seed++, 0.5, 3);
      // One operation gives the exact result rounded once; Mean rounds twice.
      const double tolerance = std::string_view(op) == "Mean" ? 3e-7 : 0;
      check_op({.op = op, .opset = opset, .inputs = {a, b}, .maybe_constant = {1}, .tolerance = tolerance});
      check_op({.op = op, .opset = opset, .inputs = {a, b}, .constant = {0}, .tolerance = tolerance});
    }
}

TEST_CASE("binary/variadic") {
  unsigned seed = 1;
  for (const char* op : {"Sum", "Mean", "Max", "Min"}) {
    check_op({.op = op, .inputs = {random_f32({2, 3, 5, 7}, seed++)}, .maybe_constant = {0}});
    check_op({.op = op,
              .inputs = {random_f32({2, 1, 5, 7}, seed++), random_f32({3, 1, 1}, seed++), random_f32({7}, seed++),
                         random_f32({2, 3, 5, 7}, seed++)},
              .maybe_constant = {1, 2},
              .tolerance = 3e-7});
  }
}

TEST_CASE("binary/integers_and_doubles") {
  unsigned seed = 1;
  for (const DType dtype :
       {DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64, DType::u64, DType::f64})
    for (const auto& [op, opset, types] : kinds)
      for (const Shapes& s : {Shapes{{2, 3, 5, 7}, {3, 1, 1}}, Shapes{{13}, {13}}}) {
        if (!types.contains(dtype)) continue;
        const Tensor a = random_of(dtype, s.a, seed++, 6, 12), b = random_of(dtype, s.b, seed++, 1, 6);
        check_op({.op = op, .opset = opset, .inputs = {a, b}, .maybe_constant = {1}, .tolerance = 1e-15});
      }
  const auto divide = [](std::int64_t a, std::int64_t b) {
    return run_op({.op = "Div", .inputs = {int64s({a}), int64s({b})}})[0].values<std::int64_t>()[0];
  };
  CHECK(divide(-7, 2) == -3);
  CHECK(divide(7, -2) == -3);
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  CHECK(divide(least, -1) == least);
  CHECK_THROWS_WITH_AS(divide(1, 0), doctest::Contains("division by zero"), Error);
  CHECK_THROWS_WITH_AS(infer_op({.op = "Div", .inputs = {int64s({4, 4}), int64s({1, 0})}, .constant = {1}}),
                       doctest::Contains("division by zero"), Error);
  const Tensor big = int64s({std::numeric_limits<std::int64_t>::max()});
  CHECK(run_op({.op = "Add", .inputs = {big, int64s({1})}})[0].values<std::int64_t>()[0] == least);
  CHECK(run_op({.op = "Mul", .inputs = {big, int64s({2})}})[0].values<std::int64_t>()[0] == -2);
}

TEST_CASE("binary/pow") {
  unsigned seed = 9;
  const Tensor x = random_of(DType::f32, {2, 3, 5, 7}, seed++, 0.1, 4);
  for (const float exponent : {2.0f, 0.5f, -1.0f, 3.0f, 1.7f, 0.0f})
    check_op(
        {.op = "Pow", .inputs = {x, Tensor::of<float>(Shape{}, {exponent})}, .maybe_constant = {1}, .tolerance = 3e-7});
  check_op({.op = "Pow", .inputs = {x, random_f32({3, 1, 1}, seed++)}, .tolerance = 6e-7});
  for (const DType base : {DType::f32, DType::f64, DType::i32, DType::i64})
    for (const DType exponent : {DType::f32, DType::f64, DType::i32, DType::i64})
      check_op({.op = "Pow",
                .inputs = {random_of(base, {4, 5}, seed++, 1, 7), random_of(exponent, {5}, seed++, 0, 4)},
                .tolerance = base == DType::f64 ? 1e-15 : 3e-7});
  const auto power = [](std::int64_t a, std::int64_t b) {
    return run_op({.op = "Pow", .inputs = {int64s({a}), int64s({b})}})[0].values<std::int64_t>()[0];
  };
  CHECK(power(-1, -3) == -1);
  CHECK(power(2, -1) == 0);
  CHECK(power(0, 0) == 1);
  CHECK(power(3, 39) == 4052555153018976267);
  CHECK_ERROR(power(0, -1), invalid_argument, "integer division by zero");
  for (const DType base : {DType::f32, DType::f64, DType::i32, DType::i64})
    for (const DType exponent : {DType::u32, DType::u64})
      check_op({.op = "Pow",
                .opset = 15,
                .inputs = {random_of(base, {3, 5, 7}, 91, -5, 5), random_of(exponent, {5, 1}, 92, 0, 7)},
                .maybe_constant = {1},
                .tolerance = 1e-6});
  // An exponent beyond int64: -1 to an odd power.
  Tensor odd(DType::u64, {1});
  odd.values<std::uint64_t>()[0] = ~std::uint64_t{0};
  CHECK(run_op({.op = "Pow", .opset = 15, .inputs = {int64s({-1}), odd}})[0].values<std::int64_t>()[0] == -1);
  CHECK(infer_error({.op = "Pow", .opset = 15, .inputs = {int64s({2}), Tensor(DType::u8, {1})}}) ==
        ErrorKind::unsupported);
}

TEST_CASE("swiglu") {
  unsigned seed = 60;
  for (const Shape& x : {Shape{}, Shape{7}, Shape{2, 3, 5, 7}, Shape{1, 33, 17, 64}, Shape{3, 0}, Shape{40000}})
    for (const double alpha : {1.0, 1.702, -0.5})
      check_op({.op = "SwiGLU",
                .opset = 28,
                .attributes = {{"alpha", alpha}},
                .inputs = {random_f32(x, seed++, 0, 5), random_f32(x, seed++)},
                .maybe_constant = {1},
                .tolerance = 2e-6});
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  check_op({.op = "SwiGLU",
            .opset = 28,
            .inputs = {Tensor::of<float>({4}, {nan, 1, 0, 200}), Tensor::of<float>({4}, {1, nan, nan, -1})},
            .tolerance = 2e-6});
  const OpCase c{.op = "SwiGLU", .opset = 28, .inputs = {random_f32({2, 3}, 1), random_f32({3}, 1)}};
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  CHECK(infer_error({.op = "SwiGLU", .opset = 27, .inputs = {random_f32({3}, 1), random_f32({3}, 1)}}) ==
        ErrorKind::unsupported);
  CHECK(infer_error({.op = "SwiGLU", .opset = 28, .inputs = {Tensor(DType::f64, {3}), Tensor(DType::f64, {3})}}) ==
        ErrorKind::unsupported);
}

TEST_CASE("binary/nan_propagates_through_max_and_min") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* op : {"Max", "Min"}) {
    const Tensor mixed = Tensor::of<float>({9}, {1, nan, 3, nan, 5, 6, 7, 8, nan});
    check_op({.op = op, .inputs = {mixed, random_f32({9}, 3)}});
    check_op({.op = op, .inputs = {random_f32({9}, 3), mixed}});
  }
}

TEST_CASE("binary/shapes_types_and_old_broadcasts_that_do_not_fit_are_refused") {
  const Tensor x(DType::f32, {2, 3});
  CHECK_THROWS_WITH_AS(infer_op({.op = "Add", .inputs = {x, Tensor(DType::f32, {2, 4})}}),
                       doctest::Contains("[2,3] and [2,4]"), Error);
  CHECK_THROWS_WITH_AS(infer_op({.op = "Add", .inputs = {x, Tensor(DType::i64, {2, 3})}}), doctest::Contains("int64"),
                       Error);
  CHECK_THROWS_WITH_AS(
      make_op({.op = "Add", .opset = 7, .attributes = {{"broadcast", std::int64_t{1}}}, .inputs = {x, x}}),
      doctest::Contains("'broadcast'"), Error);
  CHECK_ERROR(infer_op({.op = "Add", .inputs = {Tensor(DType::boolean, {2}), Tensor(DType::boolean, {2})}}),
              unsupported, "input 0 has element type bool");
  CHECK_ERROR(infer_op({.op = "Sum", .inputs = {Tensor(DType::i32, {2}), Tensor(DType::i32, {2})}}), unsupported,
              "input 0 has element type int32");
}

TEST_CASE("binary/division_by_zero_is_reported") {
  const Tensor whole = int64s({1, 2, 3}), zero = int64s({4, 0, 5}), negative = int64s({1, -2, 3});
  for (const char* op : {"Div", "Mod"})
    CHECK_THROWS_WITH_AS(run_op({.op = op, .inputs = {whole, zero}}), doctest::Contains("division by zero"), Error);
  CHECK_THROWS_WITH_AS(run_op({.op = "Pow", .inputs = {zero, negative}}), doctest::Contains("division by zero"), Error);
  CHECK_NOTHROW(run_op({.op = "Pow", .inputs = {negative, negative}}));
  CHECK_NOTHROW(run_op({.op = "Div", .inputs = {random_f32({3}, 1), Tensor(DType::f32, {3})}}));
}

TEST_CASE("binary/as_channel_affine") {
  const Shape y{2, 3, 5, 7};
  const auto affine = [&](const char* op, std::size_t side, const Tensor& constant) {
    std::vector<InputInfo> infos(2, {true, {DType::f32, y}, nullptr});
    infos[1 - side] = {true, {constant.dtype(), constant.shape()}, &constant};
    return make_op({.op = op, .inputs = {Tensor(), Tensor()}})->as_channel_affine(infos, side, y);
  };
  using Doubles = std::vector<double>;
  const Tensor one = Tensor::of<float>(Shape{}, {4.0F}), each = Tensor::of<float>({3, 1, 1}, {1.0F, 2.0F, 4.0F});
  CHECK(affine("Mul", 0, each)->factor == Doubles{1, 2, 4});
  CHECK(affine("Mul", 1, each)->offset == Doubles{0, 0, 0});
  CHECK(affine("Div", 0, one)->factor == Doubles{0.25, 0.25, 0.25});
  CHECK(affine("Add", 1, one)->offset == Doubles{4, 4, 4});
  CHECK(affine("Sub", 0, each)->offset == Doubles{-1, -2, -4});
  CHECK(affine("Sub", 1, each)->factor == Doubles{-1, -1, -1});
  CHECK(affine("Sub", 1, each)->offset == Doubles{1, 2, 4});
  CHECK_FALSE(affine("Div", 1, one).has_value());  // constant / x
  CHECK_FALSE(affine("Max", 0, one).has_value());
  CHECK_FALSE(affine("Mul", 0, random_f32({7}, 1)).has_value());              // varies along W
  CHECK_FALSE(affine("Mul", 0, random_f32({1, 1, 1, 1, 1}, 1)).has_value());  // would widen the shape
}

TEST_CASE("binary/gives_input_back") {
  const std::vector<InputInfo> one(1, {true, {DType::f32, {2}}, nullptr}), two(2, one[0]);
  for (const char* op : {"Sum", "Mean", "Max", "Min"}) {
    CHECK(make_op({.op = op, .inputs = {Tensor()}})->gives_input_back(one));
    CHECK_FALSE(make_op({.op = op, .inputs = {Tensor(), Tensor()}})->gives_input_back(two));
  }
}

TEST_CASE("binary/loops_are_merged") {
  const Shape image{2, 16, 5, 7}, channel{1, 16, 1, 1};
  const auto rank = [&](Format layout, const Shape& b, Format b_layout) {
    const BroadcastLoops::Operand operands[] = {{&image, layout}, {&b, b_layout}};
    return BroadcastLoops(image, layout, operands).rank;
  };
  CHECK(rank(formats::nchw, image, formats::nchw) == 1);
  CHECK(rank(formats::nhwc, image, formats::nhwc) == 1);
  CHECK(rank(formats::nchw, Shape{}, formats::nchw) == 1);
  CHECK(rank(formats::nhwc, channel, formats::nchw) == 2);
  CHECK(rank(formats::nchw, channel, formats::nchw) == 3);
}

TEST_CASE("binary/variants") {
  unsigned seed = 40;
  const auto signs = [](std::int64_t fmod) { return AttributeList{{"fmod", fmod}}; };
  for (const DType dtype : {DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::u16, DType::i32,
                            DType::u32, DType::i64, DType::u64})
    for (const Shapes& s : {Shapes{{2, 3, 5, 7}, {3, 1, 1}}, Shapes{{13}, {13}}, Shapes{{5, 1}, {7}}}) {
      const bool is_signed = !is_unsigned(dtype);
      for (const double sign : {1.0, -1.0}) {
        if (sign < 0 && !is_signed) continue;
        const Tensor a = random_of(dtype, s.a, seed++, is_signed ? -100 : 0, 100);
        const Tensor b = random_of(dtype, s.b, seed++, sign > 0 ? 2 : -9, sign > 0 ? 9 : -2);
        for (const std::int64_t fmod : {0, 1})
          check_op(
              {.op = "Mod", .attributes = signs(fmod), .inputs = {a, b}, .maybe_constant = {1}, .tolerance = 3e-7});
      }
    }
  // The remainder is exact, however large the quotient.
  for (const float scale : {1.0F, 0x1p20F, 0x1p27F, 0x1p60F, 0x1p-130F}) {
    Tensor a = random_f32({1000}, 3), b = random_f32({1000}, 4);
    for (float& value : a.values<float>()) value *= scale;
    a.values<float>()[0] = -0.0F, b.values<float>()[1] = INFINITY, a.values<float>()[2] = -6, b.values<float>()[2] = 3;
    const Tensor y = run_op({.op = "Mod", .attributes = signs(1), .inputs = {a, b}})[0];
    for (std::size_t k = 0; k < 1000; ++k) {
      const float wanted = std::fmod(a.values<float>()[k], b.values<float>()[k]), got = y.values<float>()[k];
      CHECK((got == wanted && std::signbit(got) == std::signbit(wanted)));
    }
  }
  const auto mod = [&](std::int64_t a, std::int64_t b, std::int64_t fmod) {
    return run_op({.op = "Mod", .attributes = signs(fmod), .inputs = {int64s({a}), int64s({b})}})[0]
        .values<std::int64_t>()[0];
  };
  CHECK(mod(-7, 3, 0) == 2);
  CHECK(mod(-7, 3, 1) == -1);
  CHECK(mod(7, -3, 0) == -2);
  CHECK(mod(7, -3, 1) == 1);
  CHECK(mod(std::numeric_limits<std::int64_t>::min(), -1, 0) == 0);
  CHECK_THROWS_WITH_AS(mod(1, 0, 0), doctest::Contains("division by zero"), Error);
  CHECK_THROWS_WITH_AS(infer_op({.op = "Mod", .inputs = {int64s({4, 4}), int64s({1, 0})}, .constant = {1}}),
                       doctest::Contains("division by zero"), Error);
  for (const DType dtype : {DType::u8, DType::u16, DType::u32, DType::u64})
    for (const char* direction : {"LEFT", "RIGHT"})
      check_op({.op = "BitShift",
                .attributes = {{"direction", std::string(direction)}},
                .inputs = {random_of(dtype, {2, 3, 5, 7}, seed++, 0, 200), random_of(dtype, {3, 1, 1}, seed++, 0, 20)},
                .maybe_constant = {1}});
  for (const DType dtype : {DType::i8, DType::i16, DType::i32})
    for (const char* direction : {"LEFT", "RIGHT"})
      check_op({.op = "BitShift",
                .opset = 28,
                .attributes = {{"direction", std::string(direction)}},
                .inputs = {random_of(dtype, {2, 3, 5, 7}, seed++, -100, 100), random_of(dtype, {5, 7}, seed++, -3, 36)},
                .maybe_constant = {1}});
  const auto shifted = [](const char* direction, std::int64_t a, std::int64_t b) {
    return run_op({.op = "BitShift",
                   .opset = 28,
                   .attributes = {{"direction", std::string(direction)}},
                   .inputs = {int64s({a}), int64s({b})}})[0]
        .values<std::int64_t>()[0];
  };
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  CHECK(shifted("LEFT", 3, 63) == least);
  CHECK(shifted("LEFT", -1, 64) == 0);
  CHECK(shifted("LEFT", -1, -1) == 0);
  CHECK(shifted("RIGHT", least, 63) == -1);
  CHECK(shifted("RIGHT", least, 64) == -1);
  CHECK(shifted("RIGHT", -5, 1) == -3);
  CHECK(shifted("RIGHT", -5, -1) == -1);
  CHECK(shifted("RIGHT", 5, -1) == 0);
  const auto all_bits = [](const char* direction) {
    Tensor ones(DType::u64, {1}), by(DType::u64, {1});
    ones.values<std::uint64_t>()[0] = ~std::uint64_t{0};
    by.values<std::uint64_t>()[0] = 64;
    return run_op({.op = "BitShift", .attributes = {{"direction", std::string(direction)}}, .inputs = {ones, by}})[0]
        .values<std::uint64_t>()[0];
  };
  CHECK(all_bits("LEFT") == 0);
  CHECK(all_bits("RIGHT") == 0);
  const Tensor byte = random_of(DType::u8, {3}, 1, 0, 9);
  CHECK_ERROR(infer_op({.op = "BitShift", .inputs = {byte, byte}}), invalid_model, "attribute 'direction' is ''");
  CHECK_THROWS_WITH_AS(
      infer_op({.op = "BitShift", .attributes = {{"direction", std::string("UP")}}, .inputs = {byte, byte}}),
      doctest::Contains("'UP'"), Error);
}

TEST_CASE("logic/nan_and_infinities") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = Tensor::of<double>(Shape{7}, {0, -0.0, inf, -inf, std::nan(""), 1e30, -1}).to_dtype(dtype);
    check_op({.op = "IsNaN", .inputs = {x}});
    for (const std::int64_t negative : {0, 1})
      for (const std::int64_t positive : {0, 1})
        check_op({.op = "IsInf",
                  .attributes = {{"detect_negative", negative}, {"detect_positive", positive}},
                  .inputs = {x}});
    check_op({.op = "IsInf", .inputs = {x}});
  }
}

TEST_CASE("prelu/slopes_broadcast_to_the_input") {
  unsigned seed = 50;
  for (const Shape& slope : {Shape{1}, Shape{9, 1, 1}, Shape{1, 9, 1, 1}, Shape{2, 9, 5, 7}, Shape{}, Shape{7}})
    check_op({.op = "PRelu",
              .inputs = {random_f32({2, 9, 5, 7}, seed++), random_f32(slope, seed++)},
              .maybe_constant = {1},
              .tolerance = 2e-7});
  CHECK_ERROR(infer_op({.op = "PRelu", .inputs = {Tensor(DType::f32, {1, 9}), Tensor(DType::f32, {4, 9})}}),
              invalid_model, "slope [4,9] does not broadcast to [1,9]");
}

// More elements than any vector has, and fewer.
TEST_CASE("prelu/of_minus_infinity") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const std::size_t n : {std::size_t{1}, std::size_t{37}})
    for (const float slope : {2.0F, -2.0F}) {
      const Tensor x = Tensor::of<float>(Shape{static_cast<std::int64_t>(n)}, std::vector<float>(n, -inf));
      const Tensor y = run_op({.op = "PRelu", .opset = 16, .inputs = {x, Tensor::of<float>(Shape{1}, {slope})}})[0];
      for (const float value : y.values<float>()) CHECK(value == -slope * inf);
    }
}

TEST_CASE("logic/comparisons_and_booleans") {
  unsigned seed = 70;
  for (const LogicRow& row : logic_table)
    for (const DType dtype : {DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::u16, DType::i32,
                              DType::u32, DType::i64, DType::u64, DType::boolean}) {
      if (!row.types.contains(dtype)) continue;
      const double high = dtype == DType::boolean ? 2 : 3;
      for (const Shapes& s : {Shapes{{2, 3, 5, 7}, {3, 1, 1}}, Shapes{{5, 1}, {7}}}) {
        OpCase c{.op = row.name, .opset = 16, .inputs = {random_of(dtype, s.a, seed++, 0, high)}};
        if (row.inputs == 2) {
          c.inputs.push_back(random_of(dtype, s.b, seed++, 0, high));
          c.maybe_constant = {1};
        }
        check_op(c);
      }
    }
  CHECK_ERROR(infer_op({.op = "And", .inputs = {Tensor(DType::f32, {2}), Tensor(DType::f32, {2})}}), unsupported,
              "input 0 has element type float32");
}

TEST_CASE("logic/where") {
  unsigned seed = 90;
  for (const DType dtype : {DType::f32, DType::i64, DType::u8, DType::i16}) {
    check_op({.op = "Where",
              .inputs = {random_of(DType::boolean, {3, 1, 7}, seed++, 0, 2),
                         random_of(dtype, {2, 3, 5, 7}, seed++, 0, 9), random_of(dtype, {5, 1}, seed++, 0, 9)},
              .maybe_constant = {0, 2}});
  }
  CHECK_ERROR(
      infer_op({.op = "Where", .inputs = {Tensor(DType::f32, {2}), Tensor(DType::f32, {2}), Tensor(DType::f32, {2})}}),
      unsupported, "input condition has element type float32");
}
