#pragma once
// Sites and cases for tests of the sparse operators.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tools/measuring/scan_sites.h"

namespace lenslet::test {

/// Every cell is a site with probability `fill`, in order. Image `empty` has none.
inline std::vector<Site> draw_sites(std::mt19937& random, std::int64_t images, const Ints& size, double fill,
                                    std::int64_t empty = -1) {
  std::vector<Site> sites;
  std::bernoulli_distribution is_site(fill);
  std::int64_t cells = 1;
  for (const std::int64_t dim : size) cells *= dim;
  for (std::int64_t image = 0; image < images; ++image)
    for (std::int64_t cell = 0; cell < cells; ++cell) {
      if (image == empty || !is_site(random)) continue;
      Site site(1 + size.size(), image);
      std::int64_t rest = cell;
      for (std::size_t a = size.size(); a > 0; --a) {
        site[a] = rest % size[a - 1];
        rest /= size[a - 1];
      }
      sites.push_back(site);
    }
  return sites;
}

/// Features [bound,C] with NaN in rows without a site, which must not be read.
inline Tensor features_of(std::size_t sites, std::int64_t bound, std::int64_t channels, unsigned seed) {
  Tensor x = random_f32({bound, channels}, seed);
  auto values = x.values<float>();
  std::fill(values.begin() + static_cast<std::ptrdiff_t>(sites) * channels, values.end(),
            std::numeric_limits<float>::quiet_NaN());
  return x;
}

using Attributes = AttributeList;

inline OpCase rulebook_case(const char* kind, const Ints& size, const Ints& kernel, Tensor indices,
                            std::int64_t images = 1, const Attributes& more = {}) {
  OpCase c{.op = "SparseRulebook",
           .domain = "lenslet",
           .attributes = {{"kind", std::string(kind)},
                          {"spatial_shape", size},
                          {"images", images},
                          {"kernel_shape", kernel}},
           .inputs = {std::move(indices)},
           .outputs = std::string_view(kind) == "submanifold" ? 1U : 2U};
  c.attributes.insert(c.attributes.end(), more.begin(), more.end());
  return c;
}

inline Attributes strides(const Ints& values) { return {{"strides", values}}; }

inline std::vector<std::int32_t> values(const Tensor& tensor) {
  const auto span = tensor.values<std::int32_t>();
  return {span.begin(), span.end()};
}

/// The message of the error that running a case throws.
inline std::string run_error(const OpCase& c) {
  INFO(c.op);
  const Error error = error_of([&] { (void)run_op(c); });
  CHECK(error.kind() == ErrorKind::invalid_argument);
  return error.what();
}

}  // namespace lenslet::test
