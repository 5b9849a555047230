#pragma once
// Shared memory barriers (mbarrier) and TMA loads and stores that complete on them (PTX ISA, "mbarrier",
// "cp.async.bulk.tensor"; sm_90). Within one block.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/tensor_map.h"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ inline std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// A barrier's phase alternates between 0 and 1, starting at 0. It flips when `arrivals` threads have arrived and all
// bytes announced in this phase have come.

__device__ inline void init_mbarrier(std::uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// Called by the initialising thread before any other uses the barriers; makes them visible to TMA, too.
__device__ inline void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive(std::uint64_t* barrier) {
  asm volatile(
      "{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [%0];\n\t}" ::"r"(shared_address(barrier))
      : "memory");
}
/// Arrives, and announces the bytes of TMA loads.
__device__ inline void arrive_expect_tx(std::uint64_t* barrier, unsigned bytes) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n\t}" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// Waits until the phase of `parity` has completed. The phase before the first has parity 1 and counts as completed.
__device__ inline void wait_parity(std::uint64_t* barrier, unsigned parity) {
  const std::uint32_t address = shared_address(barrier);
  unsigned over = 0;
  do {  // each try sleeps for as long as the hardware thinks fit
    asm volatile(
        "{\n\t.reg .pred over;\n\tmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, over;\n\t}"
        : "=r"(over)
        : "r"(address), "r"(parity)
        : "memory");
  } while (over == 0);
}

/// Makes global stores visible to later TMA reads: this thread's, and those that it has observed.
__device__ inline void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
/// The same for stores to shared memory.
__device__ inline void fence_proxy_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Prefetches the descriptor, a __grid_constant__ parameter.
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// TMA loads of a box into shared memory, aligned to 8 of its rows, issued by one thread. Coordinates are in elements,
// innermost first; bytes are counted for the whole box, even where parts lie outside.

__device__ inline void tma_load(void* to, const CUtensorMap& map, std::uint64_t* barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y)
      : "memory");
}
__device__ inline void tma_load(void* to, const CUtensorMap& map, std::uint64_t* barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ inline void tma_load(void* to, const CUtensorMap& map, std::uint64_t* barrier, int x, int y, int z, int u) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(u)
      : "memory");
}
/// im2col mode: the windows from (w, h) of image n on, at tap (tap_w, tap_h) in elements, channels from c.
__device__ inline void tma_load_im2col(void* to, const CUtensorMap& map, std::uint64_t* barrier, int c, int w, int h,
                                       int n, int tap_w, int tap_h) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(c), "r"(w), "r"(h), "r"(n), "h"(static_cast<std::uint16_t>(tap_w)),
      "h"(static_cast<std::uint16_t>(tap_h))
      : "memory");
}
/// Prefetches the box of a later load to L2.
__device__ inline void tma_prefetch(const CUtensorMap& map, int x, int y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map), "r"(x), "r"(y)
               : "memory");
}
__device__ inline void tma_prefetch(const CUtensorMap& map, int x, int y, int z, int u) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(x), "r"(y),
               "r"(z), "r"(u)
               : "memory");
}

// TMA stores; parts outside of the tensor are skipped. A thread's stores since its last commit form a group, which may
// be empty.

__device__ inline void tma_store(const CUtensorMap& map, const void* from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(x), "r"(y)
               : "memory");
}
__device__ inline void tma_store(const CUtensorMap& map, const void* from, int x, int y, int z, int u) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(u)
               : "memory");
}
__device__ inline void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until at most `groups` of this thread's latest groups still read shared memory.
template <int groups>
__device__ inline void tma_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}
/// Waits until all stores have been written.
__device__ inline void tma_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

#endif

}  // namespace lenslet::cuda
