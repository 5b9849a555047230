#pragma once
// Matrix products by cuBLAS with a row-major interface. Only this file knows that cuBLAS is column-major.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/cuda/buffer.h"
#include "base/cuda/context.h"
#include "base/cuda/graph.h"
#include "base/cuda/matrix_operand.h"
#include "lenslet/numerics.h"

struct cublasContext;

namespace lenslet::cuda {

/// One line why no Cublas can be made on `device`: what to install or set, or how the last attempt failed. Empty when
/// it can.
std::string cublas_unavailable_reason(int device);

/// NVIDIA's recommendation: 32 MiB on Hopper and newer, 4 MiB before (cuBLAS documentation, cublasSetWorkspace).
constexpr std::size_t cublas_workspace_bytes(int compute_capability) {
  return std::size_t{compute_capability >= 90 ? 32u : 4u} << 20;
}

/// A cuBLAS handle for one stream with its own workspace: calls allocate nothing, can be captured into a graph and are
/// bit-reproducible (cuBLAS documentation, "Results reproducibility"). Use from one thread at a time.
class Cublas {
 public:
  /// On the current device. Error(device) when the library is missing or fails to initialise;
  /// cublas_unavailable_reason() then reports it, and plans avoid cuBLAS.
  Cublas(const Stream& stream, std::size_t workspace_bytes);
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas();

  /// c = a * b + beta * c for `batch` products, queued on the stream. a [m,k], b [k,n], c [m,n] are row-major; rows of
  /// c are `ldc` floats apart, matrices `c_stride`. beta 0 never reads c. Sizes are at least 1; c overlaps no operand.
  /// fp32: IEEE single precision; tf32: operands rounded to 10 mantissa bits, fp32 accumulators. Error(limit) for sizes
  /// beyond 2^31 - 1; Error(device) when cuBLAS fails.
  void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const MatrixOperand& a, const MatrixOperand& b, float* c,
            std::int64_t ldc, float beta = 0, std::int64_t batch = 1, std::int64_t c_stride = 0,
            Numerics::Multiply multiply = Numerics::Multiply::fp32) const;

  /// c = a * b in fp16 or bf16 with fp32 accumulators, [m,k] * [k,n] = [m,n], row-major, dense: a reference for speed.
  /// Sizes and errors as in gemm().
  void gemm_halves(std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, void* c,
                   DType type) const;

  /// Captures products into this graph instead of the stream, until reset to null.
  void record_to(GraphRecorder* recorder) { recorder_ = recorder; }

 private:
  const Stream& stream_;
  DeviceBuffer<std::byte> workspace_;
  cublasContext* handle_ = nullptr;
  GraphRecorder* recorder_ = nullptr;
};

}  // namespace lenslet::cuda
