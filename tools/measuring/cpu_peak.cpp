#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "tools/measuring/peak.h"
#include "tools/measuring/samples.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/measuring/cpu_peak.cpp"
#include <hwy/foreach_target.h>  // compiles the part below once a target

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lenslet::tool::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains of dependent FMAs: enough for latency 5 x 2 units. Returns flops done; `sink` keeps the work alive.
double fma_round(std::size_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999999F), addend = hn::Set(d, 1e-6F);
  // Different starts: equal chains would be merged by the compiler, and the rate come out 1.5 times too high.
  auto a0 = hn::Iota(d, 1.0F), a1 = hn::Iota(d, 1.1F), a2 = hn::Iota(d, 1.2F), a3 = hn::Iota(d, 1.3F);
  auto a4 = hn::Iota(d, 1.4F), a5 = hn::Iota(d, 1.5F), a6 = hn::Iota(d, 1.6F), a7 = hn::Iota(d, 1.7F);
  auto a8 = hn::Iota(d, 1.8F), a9 = hn::Iota(d, 1.9F), a10 = hn::Iota(d, 2.0F), a11 = hn::Iota(d, 2.1F);
  for (std::size_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, factor, addend);
    a1 = hn::MulAdd(a1, factor, addend);
    a2 = hn::MulAdd(a2, factor, addend);
    a3 = hn::MulAdd(a3, factor, addend);
    a4 = hn::MulAdd(a4, factor, addend);
    a5 = hn::MulAdd(a5, factor, addend);
    a6 = hn::MulAdd(a6, factor, addend);
    a7 = hn::MulAdd(a7, factor, addend);
    a8 = hn::MulAdd(a8, factor, addend);
    a9 = hn::MulAdd(a9, factor, addend);
    a10 = hn::MulAdd(a10, factor, addend);
    a11 = hn::MulAdd(a11, factor, addend);
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
              hn::Add(hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)), hn::Add(hn::Add(a8, a9), hn::Add(a10, a11))));
  *sink = hn::GetLane(sum);
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace lenslet::tool::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet::tool {
namespace {

HWY_EXPORT(fma_round);

// Best rate of `work` (which returns what it did) run by all threads at once, in units per us.
double best_rate(int threads, int rounds, const std::function<double(int)>& work) {
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> done(static_cast<std::size_t>(threads));
    const Stopwatch round_time;
    {
      std::vector<std::jthread> workers;
      for (int t = 1; t < threads; ++t) workers.emplace_back([&, t] { done[static_cast<std::size_t>(t)] = work(t); });
      done[0] = work(0);
    }
    const double us = round_time.us();
    best = std::max(best, std::accumulate(done.begin(), done.end(), 0.0) / us);
  }
  return best;
}

}  // namespace

Peak cpu_peak(int threads) {
  Peak peak{0, 0, "FMAs in registers, copy in memory"};
  std::vector<float> sinks(static_cast<std::size_t>(threads) * 16);  // a cache line apart
  constexpr std::size_t fma_rounds = 4'000'000;
  peak.flops_per_us = best_rate(threads, 5, [&](int t) {
    return HWY_DYNAMIC_DISPATCH(fma_round)(fma_rounds, &sinks[static_cast<std::size_t>(t) * 16]);
  });
  constexpr std::size_t copy_bytes = std::size_t{64} << 20;
  std::vector<std::vector<char>> from(static_cast<std::size_t>(threads)), to(static_cast<std::size_t>(threads));
  for (std::size_t t = 0; t < from.size(); ++t) {
    from[t].assign(copy_bytes, 1);
    to[t].assign(copy_bytes, 2);
  }
  peak.bytes_per_us = best_rate(threads, 4, [&](int t) {
    const auto i = static_cast<std::size_t>(t);
    std::memcpy(to[i].data(), from[i].data(), copy_bytes);
    return 2.0 * static_cast<double>(copy_bytes);
  });
  return peak;
}

}  // namespace lenslet::tool
#endif  // HWY_ONCE
