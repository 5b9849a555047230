#include "base/cuda/cublas.h"

#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>

#include "base/cuda/cublas_library.h"
#include "base/cuda/exclusive.h"
#include "lenslet/error.h"

namespace lenslet::cuda {
namespace {

void check(cublasStatus_t status, std::string_view call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorKind::device, fmt::format("{}: {}", call, cublas_library().status_name(status)));
}

int to_int(std::int64_t size) {
  if (size > std::numeric_limits<int>::max())
    throw Error(ErrorKind::limit, fmt::format("a matrix product of size {}: cuBLAS takes up to 2^31 - 1", size));
  return static_cast<int>(size);
}

cublasOperation_t operation(const MatrixOperand& operand) { return operand.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

/// Devices on which cuBLAS failed to initialise, with the messages.
struct Failures {
  std::mutex mutex;
  std::map<int, std::string> by_device;
};
Failures& failures() {
  static Failures all;
  return all;
}

}  // namespace

std::string cublas_unavailable_reason(int device) {
  if (const std::string& reason = cublas_library().reason; !reason.empty()) return reason;
  const std::lock_guard lock(failures().mutex);
  const auto found = failures().by_device.find(device);
  return found == failures().by_device.end() ? "" : found->second;
}

Cublas::Cublas(const Stream& stream, std::size_t workspace_bytes) : stream_(stream) {
  const CublasLibrary& library = cublas_library();
  if (!library.reason.empty()) throw Error(ErrorKind::device, library.reason);
  const std::lock_guard lock(exclusive());
  try {
    workspace_ = DeviceBuffer<std::byte>(workspace_bytes);
    check(library.create(&handle_), "cublasCreate");
    check(library.set_stream(handle_, stream.get()), "cublasSetStream");
    // Must follow cublasSetStream, which resets the workspace.
    check(library.set_workspace(handle_, workspace_.data(), workspace_.bytes()), "cublasSetWorkspace");
    check(library.set_math_mode(handle_, CUBLAS_DEFAULT_MATH), "cublasSetMathMode");
  } catch (const Error& error) {
    if (handle_ != nullptr) library.destroy(handle_);
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    const std::lock_guard failed(failures().mutex);
    failures().by_device[device] = fmt::format("cuBLAS cannot be used on cuda:{}: {}", device, error.what());
    throw;
  }
}

Cublas::~Cublas() {
  if (!works_in_this_process()) return;
  const std::lock_guard lock(exclusive());  // waits for the whole device, which a capture under way does not survive
  if (const cublasStatus_t status = cublas_library().destroy(handle_); status != CUBLAS_STATUS_SUCCESS)
    std::fprintf(stderr, "lenslet: cublasDestroy: %s\n", cublas_library().status_name(status));
}

void Cublas::gemm(std::int64_t m, std::int64_t n, std::int64_t k, const MatrixOperand& a, const MatrixOperand& b,
                  float* c, std::int64_t ldc, float beta, std::int64_t batch, std::int64_t c_stride,
                  Numerics::Multiply multiply) const {
  const CublasLibrary& library = cublas_library();
  const float alpha = 1;
  // CUBLAS_COMPUTE_32F does not use TF32 on fp32 operands in the default math mode. The pedantic variant would also
  // forbid splitting the sum, which changes no rounding rule; NVIDIA calls it a debugging aid.
  const cublasComputeType_t compute =
      multiply == Numerics::Multiply::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  // Row-major memory read column-major is the transpose: c' = b' * a'. The operands swap, each with its own flag.
  const auto multiply_all = [&] {
    const cublasStatus_t status =
        batch == 1 ? library.gemm(handle_, operation(b), operation(a), to_int(n), to_int(m), to_int(k), &alpha, b.data,
                                  CUDA_R_32F, to_int(b.ld), a.data, CUDA_R_32F, to_int(a.ld), &beta, c, CUDA_R_32F,
                                  to_int(ldc), compute, CUBLAS_GEMM_DEFAULT)
                   : library.gemm_strided_batched(handle_, operation(b), operation(a), to_int(n), to_int(m), to_int(k),
                                                  &alpha, b.data, CUDA_R_32F, to_int(b.ld), b.stride, a.data,
                                                  CUDA_R_32F, to_int(a.ld), a.stride, &beta, c, CUDA_R_32F, to_int(ldc),
                                                  c_stride, to_int(batch), compute, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS)
      throw Error(ErrorKind::device, fmt::format("cuBLAS, product of m={} n={} k={} batch={}: {}", m, n, k, batch,
                                                 library.status_name(status)));
  };
  if (recorder_ != nullptr)
    recorder_->capture(stream_, multiply_all);
  else
    multiply_all();
}

void Cublas::gemm_halves(std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, void* c,
                         DType type) const {
  const CublasLibrary& library = cublas_library();
  const cudaDataType_t halves = type == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
  const float alpha = 1, beta = 0;
  // The operands swap, as above.
  const cublasStatus_t status =
      library.gemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, to_int(n), to_int(m), to_int(k), &alpha, b, halves, to_int(n), a,
                   halves, to_int(k), &beta, c, halves, to_int(n), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorKind::device, fmt::format("cuBLAS, product of m={} n={} k={} in {}: {}", m, n, k, to_string(type),
                                               library.status_name(status)));
}

}  // namespace lenslet::cuda
