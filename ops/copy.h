#pragma once
// Copies whose element type does not matter.

#include "lenslet/tensor.h"
#include "runtime/base/thread_pool.h"

namespace lenslet {

/// All bytes of `from` to `to`, which has as many; nothing happens when they are the same memory.
void copy_bytes(const Tensor& from, Tensor& to, ThreadPool& pool);

}  // namespace lenslet
