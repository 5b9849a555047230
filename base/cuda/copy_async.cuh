#pragma once
// Asynchronous copies from global to shared memory (cp.async).

#include <cuda_runtime.h>

namespace lenslet::cuda {

/// Starts the copy of `floats` (1 or 4) floats, both sides aligned to that size; writes zeros unless `valid`, but
/// `from` must be readable even then. `in_l1`: cache in L1 for other blocks of the multiprocessor; single floats always
/// are.
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
/// Closes a group of copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `pending` groups of this thread are in flight.
template <int pending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
/// The same for a number of groups that is known in the run: at most `most`.
template <int most, int from = 0>
__device__ inline void wait_for_copies(int pending) {
  if constexpr (from < most) {
    if (pending != from) return wait_for_copies<most, from + 1>(pending);
  }
  wait_for_copies<from>();
}

}  // namespace lenslet::cuda
