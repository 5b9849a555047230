// Runner::timeline on the CPU: runs with time stamps, in turn with runs without.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/time_stamps.h"
#include "runtime/exec/runner_impl.h"

namespace lenslet {

Timeline RunnerImpl::timeline(std::span<const Tensor> inputs, int runs) {
  TimeStamps stamps(info().threads);
  std::vector<Timeline> taken;
  std::vector<double> plain_us;
  while (taken.size() < static_cast<std::size_t>(runs)) {
    run(inputs);  // each of the two follows a run: threads are awake
    const auto begin = std::chrono::steady_clock::now();
    run(inputs);
    const std::chrono::duration<double, std::micro> plain = std::chrono::steady_clock::now() - begin;
    stamps.start();
    run(inputs);
    Timeline timeline = stamps.stop();
    if (stamps.grow()) continue;  // the next round stamps all
    plain_us.push_back(plain.count());
    taken.push_back(std::move(timeline));
  }
  return median_of(std::move(taken), std::move(plain_us));
}

Timeline median_of(std::vector<Timeline> taken, std::vector<double> undisturbed_us) {
  std::ranges::sort(taken, {}, &Timeline::run_us);
  std::ranges::sort(undisturbed_us);
  Timeline median = std::move(taken[taken.size() / 2]);
  median.undisturbed_us = undisturbed_us[undisturbed_us.size() / 2];
  return median;
}

}  // namespace lenslet
