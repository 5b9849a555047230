// Shape and Tensor: overflow, sharing, views, layouts.

#include "lenslet/tensor.h"
#include "base/format.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "lenslet/error.h"
#include "tests/expect_error.h"

namespace lenslet {
namespace {

using test::check_error;

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("shape/with") {
  const Shape shape{1, 2};
  CHECK(shape.with(1, 7) == Shape{1, 7});
  for (const auto& [axis, dim] : {std::pair<int, std::int64_t>{2, 1}, {-1, 1}, {1'000'000, 1}, {1, -5}})
    CHECK_THROWS_WITH_AS(shape.with(axis, dim), doctest::Contains("[1,2]"), Error);
}

TEST_CASE("tensor/shape_counts_without_overflow") {
  CHECK(Shape{}.elems() == 1);
  CHECK(Shape{2, 3, 5}.elems() == 30);
  CHECK(Shape{2, 0, 5}.elems() == 0);
  CHECK(Shape{std::int64_t{1} << 40}.elems() == std::int64_t{1} << 40);
  check_error(ErrorKind::limit, "", [] { (void)Shape{(std::int64_t{1} << 40) + 1}.elems(); });
  check_error(ErrorKind::limit, "", [] { (void)Shape{1 << 21, 1 << 20}.elems(); });
  check_error(ErrorKind::limit, "", [] { (void)Shape{huge, huge}.elems(); });
  // Empty, but its strides would overflow.
  check_error(ErrorKind::limit, "", [] { (void)Shape{0, huge, huge}.elems(); });
  check_error(ErrorKind::limit, "", [] { (void)Shape{huge, huge, 0}.elems(); });
  CHECK_FALSE(same_bytes(formats::nchw, formats::nhwc, Shape{1, 2, huge, huge}));
}

TEST_CASE("tensor/shape_refusals") {
  check_error(ErrorKind::limit, "", [] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; });
  check_error(ErrorKind::invalid_argument, "", [] { Shape{1, -1}; });
}

TEST_CASE("tensor/out_of_memory_is_an_error") {
  // 8 TiB, within the 2^40 elements a shape may have. Sanitizers refuse that much. A kernel that overcommits would
  // grant it, so the address space is limited meanwhile.
#ifndef LENSLET_SANITIZED
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  rlimit lowered = before;
  lowered.rlim_cur = rlim_t{1} << 42;
  REQUIRE(setrlimit(RLIMIT_AS, &lowered) == 0);
#endif
  check_error(ErrorKind::limit, "", [] { Tensor(DType::f64, Shape{std::int64_t{1} << 40}); });
#ifndef LENSLET_SANITIZED
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
#endif
}

TEST_CASE("tensor/copies_share_and_clones_do_not") {
  Tensor a = Tensor::of<float>(Shape{2, 2}, {1, 2, 3, 4});
  const Tensor shared = a, deep = a.clone();
  a.values<float>()[0] = 9;
  CHECK(shared.values<float>()[0] == 9);
  CHECK(deep.values<float>()[0] == 1);
  CHECK(a.reshaped(Shape{4}).data() == a.data());
  check_error(ErrorKind::invalid_argument, "", [&] { (void)a.reshaped(Shape{5}); });
  check_error(ErrorKind::invalid_argument, "", [&] { (void)a.values<double>(); });
  check_error(ErrorKind::invalid_argument, "", [] { Tensor::of<float>(Shape{3}, {1, 2}); });
  CHECK(Tensor().empty());
  CHECK_FALSE(Tensor(DType::f32, Shape{0}).empty());
}

TEST_CASE("tensor/to_layout_moves_elements") {
  const Shape shape{2, 3, 4, 5};
  std::vector<float> values(static_cast<std::size_t>(shape.elems()));
  std::iota(values.begin(), values.end(), 0.0F);
  const Tensor nchw = Tensor::of<float>(shape, std::span<const float>(values));
  const Tensor nhwc = nchw.to_format(formats::nhwc);
  CHECK(nhwc.shape() == shape);
  for (std::int64_t n = 0, i = 0; n < 2; ++n)
    for (std::int64_t c = 0; c < 3; ++c)
      for (std::int64_t h = 0; h < 4; ++h)
        for (std::int64_t w = 0; w < 5; ++w, ++i)
          CHECK(nhwc.values<float>()[static_cast<std::size_t>(((n * 4 + h) * 5 + w) * 3 + c)] ==
                values[static_cast<std::size_t>(i)]);
  const Tensor back = nhwc.to_format(formats::nchw);
  CHECK(std::equal(values.begin(), values.end(), back.values<float>().begin()));
}

TEST_CASE("tensor/types_that_are_only_carried") {
  const auto bytes = [](const Tensor& tensor) {
    const auto* from = static_cast<const std::uint8_t*>(tensor.data());
    return std::vector<int>(from, from + tensor.bytes());
  };
  const auto wide = [](const Tensor& tensor) {
    const Tensor floats = tensor.to_dtype(DType::f32);
    return std::vector<float>(floats.values<float>().begin(), floats.values<float>().end());
  };
  const Tensor x = Tensor::of<float>(Shape{6}, {0, 1, -1.5F, 3.3F, 1000, -1000});
  CHECK(bytes(x.to_dtype(DType::f8e4m3fn)) == std::vector<int>{0, 0x38, 0xBC, 0x45, 0x7E, 0xFE});
  CHECK(wide(x.to_dtype(DType::f8e4m3fn)) == std::vector<float>{0, 1, -1.5F, 3.25F, 448, -448});
  CHECK(wide(x.to_dtype(DType::f8e4m3fnuz)) == std::vector<float>{0, 1, -1.5F, 3.25F, 240, -240});
  CHECK(wide(x.to_dtype(DType::f8e5m2)) == std::vector<float>{0, 1, -1.5F, 3.5F, 1024, -1024});
  CHECK(wide(x.to_dtype(DType::f8e5m2fnuz)) == std::vector<float>{0, 1, -1.5F, 3.5F, 1024, -1024});
  CHECK(wide(x.to_dtype(DType::f8e8m0)) == std::vector<float>{0x1p-127F, 1, 2, 4, 1024, 1024});
  CHECK(bytes(x.to_dtype(DType::f4e2m1)) == std::vector<int>{0, 2, 0xB, 5, 7, 0xF});
  CHECK(wide(x.to_dtype(DType::f4e2m1)) == std::vector<float>{0, 1, -1.5F, 3, 6, -6});
  // The low bits, as in int8 and uint8.
  CHECK(bytes(x.to_dtype(DType::i4)) == std::vector<int>{0, 1, 255, 3, 248, 248});
  CHECK(bytes(x.to_dtype(DType::u4)) == std::vector<int>{0, 1, 15, 3, 8, 8});
  CHECK(wide(x.to_dtype(DType::i2)) == std::vector<float>{0, 1, -1, -1, 0, 0});
  CHECK(wide(x.to_dtype(DType::u2)) == std::vector<float>{0, 1, 3, 3, 0, 0});
  CHECK(Tensor(DType::i2, Shape{5}).bytes() == 5);
  CHECK(to_string(DType::f8e5m2fnuz) == "float8e5m2fnuz");
  CHECK(to_string(DType::u2) == "uint2");
}

TEST_CASE("tensor/to_dtype_converts_as_cast_does") {
  const auto values = [](const Tensor& tensor) {
    const Tensor wide = tensor.to_dtype(DType::f64);
    return std::vector<double>(wide.values<double>().begin(), wide.values<double>().end());
  };
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Tensor x =
      Tensor::of<float>(Shape{10}, {0.1F, -1.5F, 2049, 65519.9F, 65520, -1e38F, 2.9e-8F, 3e-8F, -0.0F, 257});
  // Halves round to even: 2049 lies between 2048 and 2050, 257 between the bfloat16 values 256 and 258.
  CHECK(values(x.to_dtype(DType::f16)) ==
        std::vector<double>{0.0999755859375, -1.5, 2048, 65504, inf, -inf, 0, 0x1p-24, 0, 257});
  CHECK(values(x.to_dtype(DType::bf16))[9] == 256);
  CHECK(values(x.to_dtype(DType::bf16))[1] == -1.5);
  CHECK(std::signbit(values(x.to_dtype(DType::f16))[8]));
  CHECK(values(x.to_dtype(DType::u8)) == std::vector<double>{0, 0, 255, 255, 255, 0, 0, 0, 0, 255});
  CHECK(values(x.to_dtype(DType::i16)) == std::vector<double>{0, -1, 2049, 32767, 32767, -32768, 0, 0, 0, 257});
  CHECK(values(x.to_dtype(DType::boolean)) == std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 0, 1});
  const Tensor nan = Tensor::of<float>(Shape{1}, {std::numeric_limits<float>::quiet_NaN()});
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) CHECK(std::isnan(values(nan.to_dtype(dtype))[0]));
  CHECK(values(nan.to_dtype(DType::i64))[0] == 0);
  CHECK(values(Tensor::of<std::int64_t>(Shape{2}, {257, -1}).to_dtype(DType::u8)) == std::vector<double>{1, 255});

  // Rounded once: via float, 2049 - 2^-30 would become a tie.
  CHECK(values(Tensor::of<double>(Shape{1}, {2049 + 0x1p-30}).to_dtype(DType::f16))[0] == 2050);

  Tensor small = Tensor::of<float>(Shape{1, 3, 1, 2}, {0, 1, 2, 3, 4, 5});
  const Tensor half = small.to_dtype(DType::f16), back = half.to_dtype(DType::f32);
  CHECK(half.dtype() == DType::f16);
  CHECK(half.shape() == small.shape());
  CHECK(half.bytes() == 12);
  small.values<float>()[0] = 9;  // a copy
  CHECK(back.values<float>()[0] == 0);
  for (const Format& format : {formats::nhwc, Format{.channel_block = 4}}) {
    const Tensor other = back.to_format(format).to_dtype(DType::i32);
    CHECK(other.format() == format);
    CHECK(values(other.to_format(formats::nchw)) == std::vector<double>{0, 1, 2, 3, 4, 5});
  }
  CHECK(Tensor().to_dtype(DType::f16).empty());
  CHECK(Tensor(DType::f32, Shape{0, 3}).to_dtype(DType::f16).shape() == Shape{0, 3});
}

}  // namespace lenslet
