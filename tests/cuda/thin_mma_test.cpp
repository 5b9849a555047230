// thin_mma at all counts of channels and filters with a code path of their own; each problem has one configuration.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <vector>

#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/random_seed.h"

namespace lenslet::test {

// Whole and partial vectors of eight channels and odd counts, with NaN in the padding channels; filters in registers
// (one set of 32 and two) and in shared memory; partial rows of 16 pixels, and more blocks than a device holds.
TEST_CASE("cuda/thin_mma/every_count_of_channels_and_filters") {
  unsigned seed = random_seed();
  for (const char* const precision : {"fp16", "bf16"}) {
    for (const std::int64_t c : {1, 2, 7, 8, 9, 16, 23, 24, 31, 32})
      for (const std::int64_t k : {1, 8, 24, 32, 33, 64, 65, 130, 512})
        if (!reduced() || (c % 8 == 7 && k > 60))
          check_tilings("thin_mma", parse_conv(fmt::format("1x{}x7x5 -> {}, 1x1 s1 p0 g1 +bias +relu", c, k)),
                        precision, seed++, as_planned, 1);
    for (const char* const activation : {"", " +silu", " +clip(-0.5,0.75)", " +hard_swish"})
      for (const std::int64_t k : {21, 64, 70})
        check_tilings("thin_mma",
                      parse_conv(fmt::format("3x20x97x101 -> {}, 1x1 s1 p0 g1 +bias +residual{}", k, activation)),
                      precision, seed++, as_planned, 1);
  }
}

}  // namespace lenslet::test
