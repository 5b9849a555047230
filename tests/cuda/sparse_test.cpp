// Networks on sparse values on a CUDA device.

#include <doctest/doctest.h>

#include "tests/cuda/skip.h"
#include "tests/exec/sparse_pool_cases.h"

namespace lenslet::test {

TEST_CASE("cuda/sparse/sites_of_each_run") {
  if (have_device("cuda/sparse/sites_of_each_run")) check_sites_of_each_run("cuda");
}
TEST_CASE("cuda/sparse/bits_repeat") {
  if (have_device("cuda/sparse/bits_repeat")) check_sparse_bits_repeat("cuda");
}
TEST_CASE("cuda/sparse/errors_of_the_run") {
  if (have_device("cuda/sparse/errors_of_the_run")) check_sparse_errors("cuda");
}
TEST_CASE("cuda/sparse/halves") {
  if (!have_device("cuda/sparse/halves")) return;
  for (const char* const precision : {"fp16", "bf16"}) check_sparse_halves("cuda", precision);
}

}  // namespace lenslet::test
