// Pools with windows on every line and enough outputs that each thread computes several (pool_square.cuh). They are
// large and specific to CUDA, so they are not in tests/ops.

#include <doctest/doctest.h>

#include "tests/ops/op_harness.h"

namespace lenslet::test {
namespace {

using Ints = std::vector<std::int64_t>;

// Strips of 4 lines (2 in 16 bits), an odd number of them; windows of 2 lines, a stride along the line, pads on one
// side, lines beyond the image.
TEST_CASE("cuda/pool/strips") {
  struct Case {
    Shape x;
    Ints kernel, strides, pads;
    std::int64_t ceil = 0;
  };
  unsigned seed = 1;
  for (const Case& c : {Case{{16, 64, 47, 49}, {3, 3}, {1, 1}, {1, 1, 1, 1}},
                        Case{{16, 64, 33, 90}, {2, 2}, {1, 2}, {1, 0, 0, 1}, 1}}) {
    const AttributeList attributes{
        {"kernel_shape", c.kernel}, {"strides", c.strides}, {"pads", c.pads}, {"ceil_mode", c.ceil}};
    check_op({.op = "MaxPool", .attributes = attributes, .inputs = {random_f32(c.x, seed++, -3)}});
    AttributeList more = attributes;
    more.emplace_back("count_include_pad", std::int64_t{seed % 4 / 2});
    check_op({.op = "AveragePool",
              .opset = 19,
              .attributes = more,
              .inputs = {random_f32(c.x, seed++, 3)},
              .tolerance = 1e-6});
  }
}

}  // namespace
}  // namespace lenslet::test
