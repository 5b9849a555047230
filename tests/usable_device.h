#pragma once
// Cases that run on each device, of which some are not here.

#include <doctest/doctest.h>

#include <string>

#include "lenslet/device.h"

namespace lenslet::test {

/// Is "cpu", or "cuda" for the first CUDA device, usable? If not, says so in words that CTest takes for a skipped case.
inline bool device_is_here(const std::string& device) {
  if (device == "cpu") return true;
  const DeviceReport report = query_devices();
  std::string reason = report.cuda.reason;
  for (const DeviceInfo& info : report.devices) {
    if (info.id != "cuda:0") continue;
    if (info.usable) return true;
    reason = info.reason;
  }
  MESSAGE("skipped: no usable CUDA device: " << reason);
  return false;
}

}  // namespace lenslet::test
