#pragma once
// Measured peak rates of a device, the reference of `bench`.

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

namespace lenslet::tool {

struct Peak {
  double flops_per_us = 0;     ///< a multiply-add counts as two
  double bytes_per_us = 0;     ///< copy of a buffer far larger than the caches, read + written
  std::string how;             ///< how they were measured
  double int8_ops_per_us = 0;  ///< products of 8-bit integers, likewise; 0: not measured
  double bf16_ops_per_us = 0;  ///< products of bfloat16, likewise; 0: not measured, or float32's
};

/// Each rate's greater one of two measurements.
inline Peak greater(Peak a, const Peak& b) {
  for (double Peak::*const rate :
       {&Peak::flops_per_us, &Peak::bytes_per_us, &Peak::int8_ops_per_us, &Peak::bf16_ops_per_us})
    a.*rate = std::max(a.*rate, b.*rate);
  return a;
}

/// Peak of the CPU with `threads` threads: independent FMAs in registers, and a copy. Takes about 0.3 s and keeps the
/// best of several short rounds, since other load only slows them down.
Peak cpu_peak(int threads);

/// Peak::int8_ops_per_us of the CPU, by AMX tiles if the process may use them, else by the vectors' instructions.
double int8_peak(int threads, bool by_tiles);
/// Peak::bf16_ops_per_us, likewise. 0 without an instruction for them.
double bf16_peak(int threads, bool by_tiles);
/// Whether the CPU has one.
bool has_bf16_products();

/// Best rate in units per us of `work`, which returns the units done, run by all threads at once.
double best_rate(int threads, int rounds, const std::function<double(int)>& work);

/// The least time at the peak rates: operations or bytes, whichever takes longer.
struct Floor {
  /// `products`: the rate of the operations, Peak's in float32 if it is 0.
  Floor(double flops, double bytes, const Peak& peak, double products = 0) {
    const double rate = products > 0 ? products : peak.flops_per_us;
    const double compute = flops / rate, move = bytes / peak.bytes_per_us;
    us = std::max(compute, move);
    other_us = std::min(compute, move);
    by = move > compute ? "bytes" : "flops";
  }
  double us = 0;
  double other_us = 0;  ///< of the bytes where `by` is "flops", else of the operations
  std::string_view by;
  double percent(double of_us) const { return of_us > 0 ? 100 * us / of_us : 0; }
};

}  // namespace lenslet::tool
