#pragma once
// Lets a test case end early, by name, on a machine without a usable CUDA device.

namespace lenslet::test {

/// True when cuda:0 runs our kernels; otherwise prints "NAME: skipped, no usable CUDA device: REASON", once a case.
bool have_device(const char* test_name);

}  // namespace lenslet::test
