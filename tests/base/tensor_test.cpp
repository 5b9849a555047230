// Shape and Tensor: counting without overflow, sharing, views, layouts.

#include "lenslet/tensor.h"
#include "base/format.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "lenslet/error.h"

namespace lenslet {
namespace {

template <typename F>
void check_error(ErrorKind kind, const F& f) {
  try {
    f();
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK_MESSAGE(error.kind() == kind, error.what());
  }
}

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("tensor/shape_counts_without_overflow") {
  CHECK(Shape{}.elems() == 1);
  CHECK(Shape{2, 3, 5}.elems() == 30);
  CHECK(Shape{2, 0, 5}.elems() == 0);
  CHECK(Shape{std::int64_t{1} << 40}.elems() == std::int64_t{1} << 40);
  check_error(ErrorKind::limit, [] { (void)Shape{(std::int64_t{1} << 40) + 1}.elems(); });
  check_error(ErrorKind::limit, [] { (void)Shape{1 << 21, 1 << 20}.elems(); });
  check_error(ErrorKind::limit, [] { (void)Shape{huge, huge}.elems(); });
  // Empty, but its strides would overflow.
  check_error(ErrorKind::limit, [] { (void)Shape{0, huge, huge}.elems(); });
  check_error(ErrorKind::limit, [] { (void)Shape{huge, huge, 0}.elems(); });
  CHECK_FALSE(same_bytes(formats::nchw, formats::nhwc, Shape{1, 2, huge, huge}));
}

TEST_CASE("tensor/shape_refusals") {
  check_error(ErrorKind::limit, [] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; });
  check_error(ErrorKind::invalid_argument, [] { Shape{1, -1}; });
}

TEST_CASE("tensor/out_of_memory_is_an_error") {
  // 8 TiB, within the 2^40 elements a shape may have. Sanitizers refuse that much; elsewhere a kernel that overcommits
  // would grant it, so the address space is limited meanwhile.
#ifndef LENSLET_SANITIZED
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  rlimit lowered = before;
  lowered.rlim_cur = rlim_t{1} << 42;
  REQUIRE(setrlimit(RLIMIT_AS, &lowered) == 0);
#endif
  check_error(ErrorKind::limit, [] { Tensor(DType::f64, Shape{std::int64_t{1} << 40}); });
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
  check_error(ErrorKind::invalid_argument, [&] { (void)a.reshaped(Shape{5}); });
  check_error(ErrorKind::invalid_argument, [&] { (void)a.values<double>(); });
  check_error(ErrorKind::invalid_argument, [] { Tensor::of<float>(Shape{3}, {1, 2}); });
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

}  // namespace lenslet
