#pragma once
// Sites and cases of the sparse operators, for their tests.

#include <array>
#include <random>
#include <string>
#include <vector>

#include "tests/ops/op_harness.h"

namespace lenslet::test {

using Ints = std::vector<std::int64_t>;
/// Image and coordinates.
using Site = std::vector<std::int64_t>;

/// `sites` as indices [bound, 1 + dims], -1 behind them.
inline Tensor indices_of(const std::vector<Site>& sites, std::int64_t bound, std::size_t dims) {
  Tensor indices(DType::i32, {bound, static_cast<std::int64_t>(1 + dims)});
  auto values = indices.values<std::int32_t>();
  std::fill(values.begin(), values.end(), -1);
  for (std::size_t i = 0; i < sites.size(); ++i)
    for (std::size_t a = 0; a <= dims; ++a) values[i * (1 + dims) + a] = static_cast<std::int32_t>(sites[i][a]);
  return indices;
}

/// Every cell is a site with probability `fill`; in order. Image `empty` has none.
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

/// Features [bound,C], NaN in the rows that no site has: nobody may read those.
inline Tensor features_of(std::size_t sites, std::int64_t bound, std::int64_t channels, unsigned seed) {
  Tensor x = random_f32({bound, channels}, seed);
  auto values = x.values<float>();
  std::fill(values.begin() + static_cast<std::ptrdiff_t>(sites) * channels, values.end(),
            std::numeric_limits<float>::quiet_NaN());
  return x;
}

}  // namespace lenslet::test
