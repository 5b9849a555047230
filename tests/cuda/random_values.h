#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace lenslet::test {

/// Uniform in [-most, most); a seed always gives the same.
inline std::vector<float> random_values(std::int64_t count, unsigned seed, float most = 1) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-most, most);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(generator);
  return values;
}

}  // namespace lenslet::test
