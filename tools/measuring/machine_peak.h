#pragma once
// What this machine can do at most, measured: the limits that `bench` compares with.

namespace lenslet::tool {

struct MachinePeak {
  double fma_flops_per_s = 0;  ///< fp32, independent FMAs in registers, all threads; multiply and add counted apart
  double bytes_per_s = 0;      ///< copy of a buffer far larger than the caches, read + written, all threads
};

/// Takes about 0.3 s. Best of several short rounds, since other load only slows it down.
MachinePeak measure_machine_peak(int threads);

}  // namespace lenslet::tool
