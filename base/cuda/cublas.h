#pragma once
// Matrix products by cuBLAS, in row-major words. The only place that knows that cuBLAS is column-major.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/cuda/buffer.h"
#include "base/cuda/context.h"
#include "base/cuda/matrix_operand.h"

struct cublasContext;

namespace lenslet::cuda {

/// Why there can be no Cublas in this process (one line that says what to install or set); empty when there can.
const std::string& cublas_unavailable_reason();

/// What NVIDIA advises: 32 MiB on Hopper and newer, 4 MiB before (cuBLAS documentation, cublasSetWorkspace).
constexpr std::size_t cublas_workspace_bytes(int compute_capability) {
  return std::size_t{compute_capability >= 90 ? 32u : 4u} << 20;
}

/// A cuBLAS handle for one stream, with a workspace of its own, so that calls allocate nothing, may be captured into a
/// graph, and repeat to the bit (cuBLAS documentation, "Results reproducibility"). Use from one thread at a time.
class Cublas {
 public:
  /// Current device. Error(device) with cublas_unavailable_reason() when there is no library, or when a call fails.
  Cublas(cudaStream_t stream, std::size_t workspace_bytes, Precision precision);
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas();

  /// c = a * b + beta * c for `batch` products queued on the stream: a [m,k], b [k,n], c [m,n] row-major with rows
  /// `ldc` floats and matrices `c_stride` floats apart. beta 0 never reads c. All sizes at least 1. c overlaps
  /// neither operand. fp32: IEEE single precision; tf32: operands rounded to 10 mantissa bits, sums in fp32.
  /// Error(limit) when a size exceeds 2^31 - 1; Error(device) when cuBLAS fails.
  void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const MatrixOperand& a, const MatrixOperand& b, float* c,
            std::int64_t ldc, float beta = 0, std::int64_t batch = 1, std::int64_t c_stride = 0) const;

 private:
  DeviceBuffer<std::byte> workspace_;
  cublasContext* handle_ = nullptr;
  Precision precision_;
};

}  // namespace lenslet::cuda
