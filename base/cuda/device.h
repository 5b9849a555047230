#pragma once
// CUDA's part of query_devices(). Plain C++: also included without CUDA.

#include "lenslet/device.h"

namespace lenslet::cuda {

// Defined in device.cpp with CUDA, in absent.cpp without.

/// The number of devices; fills `cuda`, with the reason when there are none. Creates no context.
int query_driver(CudaInfo& cuda);
/// Describes device `index`, below query_driver()'s count. Creates its context (a fraction of a second); leaves the
/// calling thread's current device unchanged.
DeviceInfo query_device(int index);

}  // namespace lenslet::cuda
