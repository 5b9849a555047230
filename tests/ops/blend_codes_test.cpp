// Weighted sums of codes, on every instruction set, to the bit of float32 arithmetic in order.

#include "ops/core/blend_codes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/ops/for_each_target.h"
#include "tests/random_seed.h"

namespace lenslet::test {

TEST_CASE("blend_codes/weighted_sums") {
  std::mt19937 random(random_seed());
  std::uniform_real_distribution<float> weight(0, 0.5F);
  for (const std::int64_t channels : {1, 3, 4, 15, 16, 17, 33, 64, 200})
    for (const DType from : {DType::u8, DType::i8})
      for (const DType to : {DType::u8, DType::i8}) {
        std::vector<std::uint8_t> x(static_cast<std::size_t>(5 * channels));
        std::ranges::generate(x, [&] { return static_cast<std::uint8_t>(random()); });
        std::vector<BlendTap> taps;
        for (const std::int64_t pixel : {3, 0, 4, 1}) taps.push_back({pixel * channels, weight(random)});
        const BlendedCodes codes{.zero = 20,
                                 .factor = 1.25F,
                                 .zero_point = to == DType::i8 ? -7 : 100,
                                 .least = to == DType::i8 ? -100 : 20,
                                 .most = to == DType::i8 ? 127 : 230,
                                 .type = to};
        for_each_target(HWY_TARGETS, [&] {
          std::vector<std::uint8_t> y(static_cast<std::size_t>(channels + 1), 77);
          blend_codes(from, x.data(), taps.data(), std::ssize(taps), channels, codes, y.data());
          for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
            float sum = 0;
            for (const BlendTap& tap : taps) {
              const std::uint8_t code = x[static_cast<std::size_t>(tap.offset) + c];
              sum +=
                  tap.weight * static_cast<float>(from == DType::i8 ? int{static_cast<std::int8_t>(code)} : int{code});
            }
            CHECK(y[c] == codes.code(sum));
          }
          CHECK(y.back() == 77);
        });
      }
}

}  // namespace lenslet::test
