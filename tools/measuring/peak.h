#pragma once
// Measured peak rates of a device, which `bench` compares with.

#include <algorithm>
#include <string>
#include <string_view>

namespace lenslet::tool {

struct Peak {
  double flops_per_us = 0;  ///< multiply and add counted apart
  double bytes_per_us = 0;  ///< copy of a buffer far larger than the caches, read + written
  std::string how;          ///< by what both were measured
};

/// Peak of the CPU with `threads` threads: independent FMAs in registers, and a copy. Takes about 0.3 s; the best of
/// several short rounds, since other load only slows it down.
Peak cpu_peak(int threads);

/// The least time that a peak allows: operations or bytes, whichever takes longer.
struct Floor {
  Floor(double flops, double bytes, const Peak& peak) {
    const double compute = flops / peak.flops_per_us, move = bytes / peak.bytes_per_us;
    us = std::max(compute, move);
    by = move > compute ? "bytes" : "flops";
  }
  double us = 0;
  std::string_view by;
  double percent(double of_us) const { return of_us > 0 ? 100 * us / of_us : 0; }
};

}  // namespace lenslet::tool
