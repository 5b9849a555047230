#pragma once
// Checked CUDA calls. Every runtime call and launch uses one of these three macros.

#include <cuda_runtime.h>

namespace lenslet::cuda {

/// Throws Error(device): "EXPRESSION: cudaErrorName (words) at file.cu:12". Clears the runtime's last error.
[[noreturn]] void throw_cuda_error(cudaError_t status, const char* expression, const char* file, int line);
/// The same as one line on stderr, for destructors. Silent while the process shuts the driver down.
void log_cuda_error(cudaError_t status, const char* expression, const char* file, int line) noexcept;

/// False in a child of fork() whose parent had used CUDA. There no CUDA call works: make none, and leave the parent's
/// resources alone.
bool works_in_this_process() noexcept;
/// The reason, for Errors.
inline constexpr const char* no_cuda_after_fork =
    "CUDA does not come along into a process that fork() makes; start it with exec (Python: the start method 'spawn')";

}  // namespace lenslet::cuda

/// Evaluates a runtime call; throws Error(device) unless it returns cudaSuccess.
#define CUDA_CHECK(call)                                                               \
  do {                                                                                 \
    const cudaError_t cuda_check_status = (call);                                      \
    if (cuda_check_status != cudaSuccess)                                              \
      ::lenslet::cuda::throw_cuda_error(cuda_check_status, #call, __FILE__, __LINE__); \
  } while (false)

/// The same where throwing is not allowed: logs and continues.
#define CUDA_LOG(call)                                                                                               \
  do {                                                                                                               \
    if (!::lenslet::cuda::works_in_this_process()) break;                                                            \
    const cudaError_t cuda_log_status = (call);                                                                      \
    if (cuda_log_status != cudaSuccess) ::lenslet::cuda::log_cuda_error(cuda_log_status, #call, __FILE__, __LINE__); \
  } while (false)

/// Use after each kernel launch: throws if it was refused. Errors inside the kernel surface at the next
/// synchronisation.
#define KERNEL_CHECK(kernel)                                                                            \
  do {                                                                                                  \
    const cudaError_t kernel_check_status = cudaGetLastError();                                         \
    if (kernel_check_status != cudaSuccess)                                                             \
      ::lenslet::cuda::throw_cuda_error(kernel_check_status, "launch of " #kernel, __FILE__, __LINE__); \
  } while (false)
