// How mma_gemm merges groups: plain arithmetic, needs no device.

#include <doctest/doctest.h>

#include "ops/conv/cuda/mma_gemm_plan.h"

namespace lenslet::cuda {
namespace {

/// The number of groups left of `groups` with c channels and k filters each.
std::int64_t left(std::int64_t groups, std::int64_t c, std::int64_t k, DType type) {
  ConvProblem p = resolve_conv({1, groups * c, 8, 8}, {groups * k, c, 3, 3}, {.groups = groups});
  p.storage = p.x_storage = type;
  const ConvProblem merged = with_merged_groups(p);
  CHECK(merged.c == p.c);
  CHECK(merged.k == p.k);
  return merged.groups;
}

TEST_CASE("conv/mma_gemm_plan/small_groups_are_taken_together") {
  CHECK(left(1, 3, 5, DType::f16) == 1);
  // Vectors of eight halves, or of four floats.
  CHECK(left(32, 16, 16, DType::f16) == 32);
  CHECK(left(32, 4, 4, DType::f16) == 16);
  CHECK(left(32, 4, 4, DType::f32) == 32);
  CHECK(left(16, 2, 1, DType::f16) == 2);
  CHECK(left(16, 2, 1, DType::f32) == 4);
  CHECK(left(10, 12, 12, DType::bf16) == 5);
  // No merged group is too wide, and all divide the groups.
  CHECK(left(16, 40, 4, DType::f16) == 16);
  CHECK(left(9, 4, 4, DType::f16) == 9);
  CHECK(left(8, 10, 1, DType::f16) == 8);
}

}  // namespace
}  // namespace lenslet::cuda
