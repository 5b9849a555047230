#pragma once
// Device memory operations for planning. Plain C++, also included in builds without CUDA.

#include <functional>
#include <memory>

#include "lenslet/tensor.h"

namespace lenslet::cuda {

/// Runs `work` with `device` current on this thread. Error(device) when a call fails.
void with_device(int device, const std::function<void()>& work);

/// A copy of the tensor's bytes in memory of the current device; get() is the device address, null for no bytes.
/// Any stream may read it. Call within with_device(). Error(device) when memory is short.
std::shared_ptr<const void> upload(const Tensor& tensor);

/// Releases `data`, memory of `device`, with that device current.
void release(int device, std::shared_ptr<const void>& data) noexcept;

}  // namespace lenslet::cuda
