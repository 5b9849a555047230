// The CPU's part of query_devices().

#include "lenslet/device.h"

#include <fmt/format.h>

#include "base/simd/targets.h"
// The targets header above selects the instruction sets.
#include <hwy/targets.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/boundary.h"
#include "base/cuda/device.h"
#include "base/thread_pool.h"
#include "lenslet/error.h"

namespace lenslet {
namespace {

/// "AMD EPYC 9B45", or empty where /proc/cpuinfo does not say (Arm).
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

/// Compiled targets that this CPU supports. Highway gives better ones lower bits.
std::int64_t usable_targets() { return hwy::SupportedTargets() & HWY_TARGETS; }

std::string target_name(std::int64_t target) {
  const std::string name = hwy::TargetName(target);
  return name.starts_with("AVX3") ? "AVX-512" + name.substr(4) : name;  // AVX3 is Highway's word
}

/// The target that HWY_DYNAMIC_DISPATCH picks.
std::string chosen_isa() {
  const std::int64_t usable = usable_targets();
  return target_name(usable & -usable);
}

DeviceInfo describe_cpu() {
  DeviceInfo info;
  info.id = "cpu";
  info.name = cpu_name();
  info.architecture = chosen_isa();
  info.cores = available_cores();
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page_bytes > 0)
    info.memory_bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
  info.usable = true;
  return info;
}

}  // namespace

void limit_instruction_set(const std::string& name) {
  at_boundary([&] {
    std::string known;
    for (std::int64_t left = usable_targets(); left != 0; left &= left - 1) {
      const std::int64_t target = left & -left;
      if (target_name(target) == name) return hwy::DisableTargets(target - 1);
      known += (known.empty() ? "" : ", ") + target_name(target);
    }
    throw Error(ErrorKind::invalid_argument,
                fmt::format("unknown or unavailable instruction set '{}' (available: {})", name, known));
  });
}

DeviceInfo query_cpu() { return at_boundary(describe_cpu); }

DeviceReport query_devices() {
  return at_boundary([] {
    DeviceReport report;
    report.devices.push_back(describe_cpu());
    const int count = cuda::query_driver(report.cuda);
    bool any_usable = false;
    for (int index = 0; index < count; ++index) {
      report.devices.push_back(cuda::query_device(index));
      any_usable |= report.devices.back().usable;
    }
    if (count > 0 && !any_usable) report.cuda.reason = report.devices.back().reason;
    return report;
  });
}

}  // namespace lenslet
