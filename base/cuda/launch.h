#pragma once
// The one way to launch a kernel.

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include "base/cuda/check.h"
#include "base/cuda/context.h"
#include "base/cuda/graph.h"

namespace lenslet::cuda {

/// Executed once by every thread of every kernel that goes through launch(): waits until the kernel before it in the
/// stream has ended, all of it, and its writes are visible. It is the first statement, unless the kernel has something
/// to do without it: before this statement a kernel may read its parameters and what was on the device before the
/// network ran (prepared filters), nothing else, and write its own shared memory only. With programmatic dependent
/// launch (CUDA Programming Guide, "Programmatic Dependent Launch and Synchronization") the launch itself then overlaps
/// that kernel's end, which takes the cost of an empty kernel in a graph on an H200 from 0.75 to 0.5 us.
///
/// What earlier kernels wrote must not be read through `const __restrict__` pointers or __ldg: these become
/// ld.global.nc, which promises that nobody writes during the kernel, and the kernel may have begun while the one
/// before still writes. Seen: one first run in fifty gave what had been in the arena before.
__device__ inline void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Optional, after wait_for_previous(): once every block has called this or ended, blocks of the next kernel may start
/// where there is room. They still wait in their own wait_for_previous() until this kernel ends. Without it they start
/// when this kernel's last block ends.
__device__ inline void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Queues `launch` on the context's stream, or adds it to the graph being recorded. An empty grid (an empty tensor) is
/// skipped. Error(device).
void queue(const Context& context, KernelLaunch launch);

/// Queues kernel<<<grid, block, shared_bytes, context.stream>>>(arguments...) with clusters of `cluster` blocks, which
/// divides the grid: at most 8, and more than 1 only with DeviceProfile::clusters. Otherwise as launch().
template <typename... Parameters, typename... Arguments>
void launch_clusters(const Context& context, void (*kernel)(Parameters...), dim3 grid, dim3 block, dim3 cluster,
                     std::size_t shared_bytes, Arguments&&... arguments) {
  std::tuple<Parameters...> values(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  std::apply(
      [&](auto&... value) {
        std::array<void*, sizeof...(Parameters)> addresses{const_cast<void*>(static_cast<const void*>(&value))...};
        queue(context, {.kernel = reinterpret_cast<const void*>(kernel),
                        .grid = grid,
                        .block = block,
                        .cluster = cluster,
                        .shared_bytes = shared_bytes,
                        .arguments = addresses.data()});
      },
      values);
}

/// Queues kernel<<<grid, block, shared_bytes, context.stream>>>(arguments...). The kernel must call
/// wait_for_previous(). More than 48 KiB of dynamic shared memory needs allow_shared_bytes(kernel, bytes) before.
template <typename... Parameters, typename... Arguments>
void launch(const Context& context, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Arguments&&... arguments) {
  launch_clusters(context, kernel, grid, block, dim3(1), shared_bytes, std::forward<Arguments>(arguments)...);
}

/// Raises the kernel's limit of dynamic shared memory on the current device to at least `bytes`. It never lowers the
/// limit: another launch may still need it. Cheap enough to call before each launch.
void allow_shared_bytes(const void* kernel, std::size_t bytes);
template <typename... Parameters>
void allow_shared_bytes(void (*kernel)(Parameters...), std::size_t bytes) {
  allow_shared_bytes(reinterpret_cast<const void*>(kernel), bytes);
}

/// Blocks needed for `items`, with `per_block` items each.
constexpr unsigned blocks_for(long long items, long long per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace lenslet::cuda
