#pragma once
// The CUDA half's answer to query_devices(). Plain C++: included where there is no CUDA, too.

#include "lenslet/device.h"

namespace lenslet::cuda {

// In device.cpp with CUDA, in absent.cpp without.

/// How many devices the driver shows; fills `cuda`, with a reason where it shows none. Makes no context.
int query_driver(CudaInfo& cuda);
/// One of them, `index` below query_driver()'s count. Makes its context (a fraction of a second) and leaves the calling
/// thread's current device as it was.
DeviceInfo query_device(int index);

}  // namespace lenslet::cuda
