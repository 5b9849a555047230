#pragma once
// Measured peak rates of a device, the reference of `bench`.

#include <algorithm>
#include <string>
#include <string_view>

namespace lenslet::tool {

struct Peak {
  double flops_per_us = 0;  ///< a multiply-add counts as two
  double bytes_per_us = 0;  ///< copy of a buffer far larger than the caches, read + written
  std::string how;          ///< how both were measured
};

/// Peak of the CPU with `threads` threads: independent FMAs in registers, and a copy. Takes about 0.3 s and keeps the
/// best of several short rounds, since other load only slows them down.
Peak cpu_peak(int threads);

/// The least time at the peak rates: operations or bytes, whichever takes longer.
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
