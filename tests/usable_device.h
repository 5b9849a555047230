#pragma once
// Cases that run on each device, even if some are missing.

#include <doctest/doctest.h>

#include <string>

#include "lenslet/device.h"

namespace lenslet::test {

/// Whether "cpu", or "cuda" for the first CUDA device, is usable. If not, prints a line that CTest counts as skipped.
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
