#pragma once
// The CUDA half's answer to query_devices(). Plain C++: included where there is no CUDA, too.

#include <vector>

#include "lenslet/device.h"

namespace lenslet::cuda {

/// Appends what the driver shows to report.devices and fills report.cuda. device.cpp with CUDA, absent.cpp without.
void query(DeviceReport& report);

}  // namespace lenslet::cuda
