#pragma once
// Copies whose element type does not matter.

#include "base/thread_pool.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// All bytes of `from` to `to`, which has as many; nothing happens when they are the same memory.
void copy_bytes(const Tensor& from, Tensor& to, ThreadPool& pool);

}  // namespace lenslet
