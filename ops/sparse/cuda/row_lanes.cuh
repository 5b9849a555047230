#pragma once
// Rows of features, each by some neighbouring threads of a warp.

#include <cstdint>

namespace lenslet::cuda {

/// Threads for a row of so many: a power of two, 32 at most.
inline int lanes_of_row(std::int64_t channels) {
  int lanes = 1;
  while (lanes < 32 && lanes < channels) lanes *= 2;
  return lanes;
}

}  // namespace lenslet::cuda
