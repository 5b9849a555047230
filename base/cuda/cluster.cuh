#pragma once
// Thread-block clusters: blocks that run at the same time and read each other's shared memory (CUDA Programming Guide,
// "Thread Block Clusters"; sm_90 and newer). Kernels compiled for older devices are not launched in clusters.

#include <cuda_runtime.h>

#include "base/cuda/launch.h"

namespace lenslet::cuda {

// Cluster barriers are .aligned (a warp arrives as a whole): hence __syncwarp() after code where lanes may diverge.

/// Barrier over all threads of the cluster, its own block's included (as __syncthreads()). Writes to shared memory
/// before it are visible after it.
__device__ inline void sync_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// The two halves of a barrier that orders execution but no memory. A block that exits after wait_for_cluster() exits
/// after the others have reached leave_cluster(). Loads count as done once their values were used.
__device__ inline void leave_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ inline void wait_for_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/// Stores 16 bytes into block `rank` at the offset that `mine` has in this block's shared memory. That block must have
/// started: call it after a cluster barrier.
__device__ inline void store_in_block(int rank, float4* mine, float4 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n\t.reg .b32 theirs;\n\tmapa.shared::cluster.u32 theirs, %0, %1;\n\t"
      "st.shared::cluster.v4.f32 [theirs], {%2, %3, %4, %5};\n\t}" ::"r"(
          static_cast<unsigned>(__cvta_generic_to_shared(mine))),
      "r"(rank), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
      : "memory");
#else
  *mine = value;
#endif
}

/// Address in block `rank` of the shared memory that this block has at `mine`.
__device__ inline const float* in_block(int rank, const float* mine) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const float* theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
  return theirs;
#else
  return mine;
#endif
}

}  // namespace lenslet::cuda
