#include "base/cuda/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "base/fork.h"
#include "lenslet/error.h"

namespace lenslet::cuda {
namespace {

std::string describe(cudaError_t status, const char* expression, const char* file, int line) {
  std::string_view name = file;
  name.remove_prefix(name.find_last_of('/') + 1);  // npos + 1 == 0: no folder
  return fmt::format("{}: {} ({}) at {}:{}", expression, cudaGetErrorName(status), cudaGetErrorString(status), name,
                     line);
}

}  // namespace

void throw_cuda_error(cudaError_t status, const char* expression, const char* file, int line) {
  cudaGetLastError();  // so that the next KERNEL_CHECK does not report this one again
  throw Error(ErrorKind::device, describe(status, expression, file, line));
}

void log_cuda_error(cudaError_t status, const char* expression, const char* file, int line) noexcept {
  // Static destructors may run after the driver has shut down: then there is nothing to free.
  if (status == cudaErrorCudartUnloading) return;
  cudaGetLastError();
  try {
    fmt::print(stderr, "lenslet: {}\n", describe(status, expression, file, line));
  } catch (...) {
    std::fputs("lenslet: a CUDA call failed while cleaning up\n", stderr);
  }
}

bool works_in_this_process() noexcept {
  static const unsigned first_used_in = fork_count();
  return first_used_in == fork_count();
}

}  // namespace lenslet::cuda
