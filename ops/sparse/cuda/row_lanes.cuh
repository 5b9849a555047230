#pragma once
// Rows of features, each processed by a group of adjacent lanes.

#include <cstdint>

namespace lenslet::cuda {

/// Lanes per row of `channels`: a power of two, at most 32.
inline int lanes_of_row(std::int64_t channels) {
  int lanes = 1;
  while (lanes < 32 && lanes < channels) lanes *= 2;
  return lanes;
}

}  // namespace lenslet::cuda
