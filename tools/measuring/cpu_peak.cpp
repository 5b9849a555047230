#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "tools/measuring/peak.h"
#include "tools/measuring/samples.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/measuring/cpu_peak.cpp"
#include <hwy/foreach_target.h>  // compiles the code below once for each target

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lenslet::tool::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains of dependent FMAs: enough for latency 5 x 2 units. Returns the FLOPs done; `sink` keeps the work alive.
double fma_round(std::size_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999999F), addend = hn::Set(d, 1e-6F);
  constexpr int count = 12;
  hn::Vec<decltype(d)> chains[count];
  // Different starts: the compiler would merge equal chains, and the rate would be 1.5 times too high.
  for (int i = 0; i < count; ++i) chains[i] = hn::Iota(d, 1 + 0.1F * static_cast<float>(i));
  for (std::size_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(count)
    for (int i = 0; i < count; ++i) chains[i] = hn::MulAdd(chains[i], factor, addend);
  }
  for (int i = 1; i < count; ++i) chains[0] = hn::Add(chains[0], chains[i]);
  *sink = hn::GetLane(chains[0]);
  return 2.0 * count * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace lenslet::tool::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet::tool {
namespace {

HWY_EXPORT(fma_round);

}  // namespace

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

Peak cpu_peak(int threads) {
  Peak peak{.how = "FMAs in registers, copy in memory"};
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
