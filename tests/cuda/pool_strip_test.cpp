// Pools whose windows begin on every line, of so many outputs that a thread makes several of them (pool_square.cuh).
// Here and not in tests/ops: they are large, and other devices know no strips.

#include <doctest/doctest.h>

#include "tests/ops/op_harness.h"

namespace lenslet::test {
namespace {

using Ints = std::vector<std::int64_t>;

// Strips of 5 lines and of 2, 4 in float16; an uneven number of them; windows of 2 lines, strides along the line, pads
// on one side, lines behind the image.
TEST_CASE("cuda/pool/strips") {
  struct Case {
    Shape x;
    Ints kernel, strides, pads;
    std::int64_t ceil = 0;
  };
  unsigned seed = 1;
  for (const Case& c :
       {Case{{40, 64, 47, 49}, {3, 3}, {1, 1}, {1, 1, 1, 1}}, Case{{16, 64, 47, 49}, {3, 3}, {1, 1}, {0, 2, 1, 0}},
        Case{{48, 64, 41, 96}, {2, 2}, {1, 2}, {1, 0, 0, 1}, 1}, Case{{64, 5, 90, 91}, {3, 3}, {1, 1}, {2, 2, 2, 2}}}) {
    const AttributeList attributes{
        {"kernel_shape", c.kernel}, {"strides", c.strides}, {"pads", c.pads}, {"ceil_mode", c.ceil}};
    check_op({.op = "MaxPool", .attributes = attributes, .inputs = {random_f32(c.x, seed++, -3)}});
    for (const std::int64_t include : {0, 1}) {
      AttributeList more = attributes;
      more.emplace_back("count_include_pad", include);
      check_op({.op = "AveragePool",
                .opset = 19,
                .attributes = more,
                .inputs = {random_f32(c.x, seed++, 3)},
                .tolerance = 1e-6});
    }
  }
}

}  // namespace
}  // namespace lenslet::test
