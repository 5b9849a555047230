// LRN against the oracle.

#include <doctest/doctest.h>

#include "tests/ops/op_harness.h"

namespace lenslet::test {

TEST_CASE("lrn/every_size_and_exponent_is_within_what_is_stated") {
  unsigned seed = 300;
  for (const Shape& x : {Shape{2, 13, 5, 7}, Shape{1, 3, 9, 9}, Shape{1, 64, 3, 3}, Shape{2, 9, 1, 1}, Shape{1, 7, 11}})
    for (const std::int64_t size : {1, 3, 4, 5})
      for (const double beta : {0.75, 0.5, 1.3})
        check_op({.op = "LRN",
                  .attributes = {{"size", size}, {"alpha", 0.5}, {"beta", beta}, {"bias", 2.0}},
                  .inputs = {random_f32(x, seed++, 0, 3)},
                  .tolerance = 1e-6});
}

}  // namespace lenslet::test
