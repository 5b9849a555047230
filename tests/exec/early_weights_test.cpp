// Which weights come to L2 before their steps.

#include "runtime/exec/early_weights.h"

#include <doctest/doctest.h>

#include <vector>

using namespace lenslet;

namespace {

constexpr std::size_t mb = 1'000'000;

DeviceProfile device() {
  DeviceProfile profile;
  profile.kind = DeviceKind::cuda;
  profile.clusters = true;
  profile.l2_bytes = 50 * mb;
  return profile;
}

/// As of VGG-16 in fp16: convolutions, of which some wait, a pool without weights, and fully connected layers.
const std::vector<StepWeights> steps{{.bytes = 1},
                                     {.bytes = 5 * mb, .waits = true},
                                     {},
                                     {.bytes = 5 * mb, .waits = true},
                                     {.bytes = 3 * mb, .waits = true},
                                     {.bytes = 205 * mb},
                                     {.bytes = 4 * mb},
                                     {},
                                     {.bytes = 205 * mb, .product = true},
                                     {.bytes = 60 * mb, .product = true},
                                     {.bytes = 8 * mb, .product = true}};

}  // namespace

TEST_CASE("exec/early_weights/of_kernels_that_wait_and_of_large_products") {
  const std::vector<EarlyWeights> found = early_weights(steps, 492 * mb, device());
  REQUIRE(found.size() == 2);
  // Not those of step 1: that would be at the graph's root; nor those of step 4, which are few.
  CHECK(found[0].step == 3);
  CHECK(found[0].behind == 0);
  CHECK(found[0].beside == 1);
  CHECK(found[0].bytes == 5 * mb);
  // Half of L2. Not of what is no product, nor the second product's, which would be gone before they are read, nor
  // those that L2 has room for.
  CHECK(found[1].step == 8);
  CHECK(found[1].behind == 5);
  CHECK(found[1].beside == 6);
  CHECK(found[1].bytes == 25 * mb);
}

TEST_CASE("exec/early_weights/none_at_the_root") {
  const std::vector<StepWeights> first{{.bytes = 1}, {.bytes = 205 * mb, .product = true}};
  CHECK(early_weights(first, 205 * mb, device()).empty());
}

TEST_CASE("exec/early_weights/none_where_weights_stay_in_L2_or_nothing_was_measured") {
  CHECK(early_weights(steps, 100 * mb, device()).empty());
  DeviceProfile older = device();
  older.clusters = false;
  CHECK(early_weights(steps, 492 * mb, older).empty());
  CHECK(early_weights(steps, 492 * mb, DeviceProfile()).empty());
  CHECK(early_weights({}, 492 * mb, device()).empty());
}
