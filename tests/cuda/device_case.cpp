#include "tests/cuda/device_case.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/device_profile.h"
#include "lenslet/device.h"

namespace lenslet::test {
namespace {

/// Empty if cuda:0 is usable.
std::string first_device_reason() {
  const DeviceReport report = query_devices();
  for (const DeviceInfo& device : report.devices)
    if (device.id == "cuda:0") return device.usable ? "" : device.reason;
  return report.cuda.reason;
}

}  // namespace

bool can_run(const std::string& name, const std::string& reason) {
  if (!reason.empty()) fmt::print("{}: skipped, no usable CUDA device: {}\n", name, reason);
  return reason.empty();
}

bool have_device(const std::string& name) {
  static const std::string reason = first_device_reason();
  return can_run(name, reason);
}

std::string no_wgmma() {
  const DeviceProfile device = cuda::device_profile(0);
  if (device.capability != 90) return "wgmma is of compute capability 9.0 alone";
  return device.clusters ? "" : "this build has no code for sm_90a";
}

bool reduced() { return std::getenv("LENSLET_TEST_REDUCED") != nullptr; }

}  // namespace lenslet::test
