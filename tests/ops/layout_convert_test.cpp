// LayoutConvert: every element size, both directions, sizes around the blocks of the kernel.

#include "ops/movement/layout_convert.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

namespace lenslet::test {
namespace {

// What the definition says: element (n, c, h, w) has one value in either layout.
template <typename T>
void check_all(const Shape& shape, DType dtype, int threads, std::mt19937& random) {
  const auto elems = static_cast<std::size_t>(shape.elems());
  constexpr std::size_t guard = 64;
  ThreadPool pool(threads);
  for (const Format to : {formats::nhwc, formats::nchw}) {
    const Format from = to == formats::nhwc ? formats::nchw : formats::nhwc;
    Tensor x(dtype, shape, from);
    auto* in = static_cast<T*>(x.data());
    for (std::size_t i = 0; i < elems; ++i) in[i] = static_cast<T>(random());
    std::vector<T> memory(elems + 2 * guard, static_cast<T>(0x5A));
    Tensor outputs[] = {Tensor::view(dtype, shape, memory.data() + guard, to)};
    make_layout_convert()->run_cpu({{&x, 1}, outputs, {}, nullptr, pool});

    const T* out = memory.data() + guard;
    const auto channels = static_cast<std::size_t>(shape[1]);
    const auto pixels = static_cast<std::size_t>(shape[2] * shape[3]);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < elems; ++i) {
      const std::size_t n = i / (channels * pixels), c = i / pixels % channels, pixel = i % pixels;
      const std::size_t nhwc = (n * pixels + pixel) * channels + c;
      if ((to == formats::nhwc ? in[i] : in[nhwc]) != (to == formats::nhwc ? out[nhwc] : out[i])) ++wrong;
    }
    CHECK_MESSAGE(wrong == 0, shape.str(), " ", std::string(to_string(dtype)), " to ", std::string(to_string(to)));
    for (std::size_t i = 0; i < guard; ++i) {
      REQUIRE(memory[i] == static_cast<T>(0x5A));
      REQUIRE(memory[guard + elems + i] == static_cast<T>(0x5A));
    }
  }
}

}  // namespace

TEST_CASE("layout_convert/every_size") {
  std::mt19937 random(std::random_device{}());
  for (const std::int64_t channels : {1, 2, 3, 4, 7, 16, 33, 65})
    for (const Shape& image : {Shape{1, 1}, Shape{1, 7}, Shape{5, 9}, Shape{33, 31}, Shape{61, 67}})
      for (const std::int64_t n : {1, 3}) {
        const Shape shape{n, channels, image[0], image[1]};
        const int threads = 1 + static_cast<int>(random() % 3);
        check_all<std::uint8_t>(shape, DType::u8, threads, random);
        check_all<std::uint16_t>(shape, DType::f16, threads, random);
        check_all<std::uint32_t>(shape, DType::f32, threads, random);
        check_all<std::uint64_t>(shape, DType::i64, threads, random);
      }
}

TEST_CASE("layout_convert/refuses_other_ranks") {
  const InputInfo info{true, {DType::f32, {2, 3, 4}}, nullptr};
  CHECK_THROWS_AS(make_layout_convert()->infer({&info, 1}), Error);
}

}  // namespace lenslet::test
