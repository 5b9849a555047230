#pragma once
// Site lists for the sparse operators, and those of a generated scan: for tests and benchmarks.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "lenslet/tensor.h"

namespace lenslet::test {

using Ints = std::vector<std::int64_t>;
/// Image and coordinates.
using Site = std::vector<std::int64_t>;

/// `sites` as indices [bound, 1 + dims], padded with -1.
inline Tensor indices_of(const std::vector<Site>& sites, std::int64_t bound, std::size_t dims) {
  Tensor indices(DType::i32, {bound, static_cast<std::int64_t>(1 + dims)});
  auto values = indices.values<std::int32_t>();
  std::fill(values.begin(), values.end(), -1);
  for (std::size_t i = 0; i < sites.size(); ++i)
    for (std::size_t a = 0; a <= dims; ++a) values[i * (1 + dims) + a] = static_cast<std::int32_t>(sites[i][a]);
  return indices;
}

/// The grid of a LiDAR scan (z, y, x), and at least `count` of its cells in order for each of `images`: rings on the
/// ground, and walls.
inline const Ints scan_grid{41, 1440, 1440};
inline std::vector<Site> scan_sites(std::int64_t count, std::int64_t images, unsigned seed) {
  std::mt19937 random(seed);
  const auto in = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  std::vector<Site> sites;
  for (std::int64_t image = 0; image < images; ++image) {
    std::vector<Site> own;
    while (static_cast<std::int64_t>(own.size()) < count) {
      const bool wall = in(0, 3) == 0;
      const std::int64_t length = in(5, 60), y = in(0, 1439), step = in(-1, 1);
      std::int64_t z = wall ? in(0, 30) : in(3, 6), x = in(0, 1439 - length);
      for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t at = std::clamp<std::int64_t>(y + step * i, 0, 1439);
        own.push_back({image, z, at, x + i});
        if (wall && z < 40) own.push_back({image, z + 1, at, x + i});
      }
    }
    std::sort(own.begin(), own.end());
    own.erase(std::unique(own.begin(), own.end()), own.end());
    sites.insert(sites.end(), own.begin(), own.end());
  }
  return sites;
}

}  // namespace lenslet::test
