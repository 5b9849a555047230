#pragma once
// Copies from global to shared memory in the background (cp.async).

#include <cuda_runtime.h>

namespace lenslet::cuda {

/// Starts the copy of `floats` (1 or 4) floats, both sides aligned to their size; zeros instead unless `valid`. `from`
/// must be an address that could be read even then. `in_l1`: other blocks of the multiprocessor want the same soon;
/// single floats always go there.
template <int floats, bool in_l1 = floats == 1>
__device__ inline void copy_async(float* to, const float* from, bool valid) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  constexpr int size = 4 * floats;
  const int bytes = valid ? size : 0;
  if constexpr (in_l1)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(size), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(size), "r"(bytes)
                 : "memory");
}
/// Ends a group of copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until no more than `pending` of this thread's groups are under way.
template <int pending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace lenslet::cuda
