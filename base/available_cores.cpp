// Cores this process may use: the least of the hardware, the affinity mask and the cgroup quota.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#include "base/cgroup_quota.h"
#include "base/thread_pool.h"

namespace lenslet {
namespace {

int affinity_cores() {
  // With more CPUs than the static mask holds, the call fails with EINVAL: grow until it fits.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 18); cpus *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<std::size_t>(cpus));
    if (mask == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    const int failed = sched_getaffinity(0, bytes, mask);
    const int found = failed != 0 ? 0 : CPU_COUNT_S(bytes, mask);
    CPU_FREE(mask);
    if (found > 0) return found;
  }
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

int available_cores() {
  int cores = affinity_cores();
  std::ifstream own("/proc/self/cgroup");
  const double quota = cgroup_cpu_quota("/sys/fs/cgroup", own);
  // Rounded up: half a core still runs one thread; of 1.5 cores the second thread runs half of the time.
  if (quota > 0) cores = std::min(cores, static_cast<int>(std::ceil(quota)));
  return std::max(cores, 1);
}

}  // namespace lenslet
