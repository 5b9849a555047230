// The rounding of neighbour_mma. Its configurations are tested in sparse_conv_test.cpp with SparseConv's other kernels.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/cuda/posed_sparse_conv.h"
#include "tests/cuda/tf32_rounding.h"
#include "tests/random_seed.h"

namespace lenslet::test {

// With whole and half vectors of channels, in every configuration.
TEST_CASE("cuda/neighbour_mma/x_is_rounded_to_the_nearest_tf32") {
  for (const std::int64_t channels : {16, 20, 18}) {
    const unsigned seed = random_seed();
    const Wanted w{.size = {6, 20, 20},
                   .channels = channels,
                   .filters = channels,
                   .fill = 0.3,
                   .numerics = "tf32",
                   .copies = true};
    const Posed posed(w, seed);
    const std::vector<float> x(posed.exact().values.begin(), posed.exact().values.end());
    int calls = 0;
    posed.for_each_call([&](const Call& call) {
      if (call.kernel.name() != "neighbour_mma") return;
      ++calls;
      const std::size_t wrong = not_rounded_to_tf32(x, posed.run(call, w.str())[0].values<float>());
      CHECK_MESSAGE(wrong == 0, call.str(), " on ", w.str(), ", seed ", seed, ": ", wrong, " of ", x.size());
    });
    CHECK(calls > 0);
  }
}

}  // namespace lenslet::test
