#pragma once
// Vectorised gather of 4-byte elements by one index each, on the CPU.

#include <cstdint>
#include <limits>

#include "lenslet/tensor.h"

namespace lenslet {

/// The sources of a line: element i is from[i * from_step + index * axis_step], index in [-dim, dim).
struct GatherLine {
  std::int64_t from_step = 0, dim = 1, axis_step = 1;

  /// True if offsets fit the vectors' 32 bits.
  bool serves(std::int64_t n) const {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    return from_step >= 0 && axis_step >= 0 && dim > 0 && dim <= most &&
           (n - 1) * from_step + (dim - 1) * axis_step <= most;
  }
};

/// Writes to[0, n). False if an index was out of range: it was taken as 0.
bool gather_line(const GatherLine& line, const std::int64_t* indices, std::int64_t n, const std::uint32_t* from,
                 std::uint32_t* to);
bool gather_line(const GatherLine& line, const std::int32_t* indices, std::int64_t n, const std::uint32_t* from,
                 std::uint32_t* to);

}  // namespace lenslet
