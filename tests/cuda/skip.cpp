#include "tests/cuda/skip.h"

#include <fmt/format.h>

#include <string>

#include "lenslet/device.h"

namespace lenslet::test {
namespace {

/// Empty when cuda:0 can be used.
std::string first_device_reason() {
  for (const DeviceInfo& device : query_devices().devices)
    if (device.id == "cuda:0") return device.usable ? "" : device.reason;
  return query_devices().cuda.reason;
}

}  // namespace

bool have_device(const char* test_name) {
  static const std::string reason = first_device_reason();
  if (reason.empty()) return true;
  fmt::print("{}: skipped, no usable CUDA device: {}\n", test_name, reason);
  return false;
}

}  // namespace lenslet::test
