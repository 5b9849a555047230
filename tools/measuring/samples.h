#pragma once
// Repeated measurements.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace lenslet::tool {

/// A timer that starts at construction.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double ms() const { return 1e3 * seconds(); }
  double us() const { return 1e6 * seconds(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

/// Minimum sample count for a first time of `seconds`: few for very slow runs.
inline std::size_t least_samples(double seconds) { return seconds < 0.02 ? 7 : seconds < 0.2 ? 3 : 1; }

/// Collects results of `measure` until `seconds` have passed, at least `least`.
template <typename Measure>
std::vector<double> sample(double seconds, std::size_t least, const Measure& measure) {
  std::vector<double> samples;
  for (const Stopwatch all; samples.size() < least || all.seconds() < seconds;) samples.push_back(measure());
  return samples;
}

struct Quantiles {
  double median = 0, p10 = 0, p90 = 0, least = 0;
  std::size_t count = 0;
};
/// Requires at least one sample.
inline Quantiles quantiles(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  return {.median = samples[n / 2],
          .p10 = samples[n / 10],
          .p90 = samples[std::min(n - 1, n * 9 / 10)],
          .least = samples[0],
          .count = n};
}

}  // namespace lenslet::tool
