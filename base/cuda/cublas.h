#pragma once
// Matrix products by cuBLAS, in row-major words. The only place that knows that cuBLAS is column-major.

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

/// Why there can be no Cublas on `device` (one line: what to install or set, or how the last attempt to make one there
/// failed); empty when there can.
std::string cublas_unavailable_reason(int device);

/// What NVIDIA advises: 32 MiB on Hopper and newer, 4 MiB before (cuBLAS documentation, cublasSetWorkspace).
constexpr std::size_t cublas_workspace_bytes(int compute_capability) {
  return std::size_t{compute_capability >= 90 ? 32u : 4u} << 20;
}

/// A cuBLAS handle for one stream, with a workspace of its own, so that calls allocate nothing, may be captured into a
/// graph, and repeat to the bit (cuBLAS documentation, "Results reproducibility"). Use from one thread at a time.
class Cublas {
 public:
  /// On the current device. Error(device) when there is no library, or when it cannot be initialised: then
  /// cublas_unavailable_reason() says so from now on, and plans can be made without.
  Cublas(const Stream& stream, std::size_t workspace_bytes);
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas();

  /// c = a * b + beta * c for `batch` products queued on the stream: a [m,k], b [k,n], c [m,n] row-major with rows
  /// `ldc` floats and matrices `c_stride` floats apart. beta 0 never reads c. All sizes at least 1. c overlaps
  /// neither operand. fp32: IEEE single precision; tf32: operands rounded to 10 mantissa bits, sums in fp32.
  /// Error(limit) when a size exceeds 2^31 - 1; Error(device) when cuBLAS fails.
  void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const MatrixOperand& a, const MatrixOperand& b, float* c,
            std::int64_t ldc, float beta = 0, std::int64_t batch = 1, std::int64_t c_stride = 0,
            Numerics::Multiply multiply = Numerics::Multiply::fp32) const;

  /// c = a * b of fp16 or bf16 operands and results [m,k], [k,n], [m,n], row-major without gaps, sums in fp32: what
  /// such products can reach. Sizes and errors as of gemm().
  void gemm_halves(std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, void* c,
                   DType type) const;

  /// Until it is set back to null, products are captured into this graph in place of the stream.
  void record_to(GraphRecorder* recorder) { recorder_ = recorder; }

 private:
  const Stream& stream_;
  DeviceBuffer<std::byte> workspace_;
  cublasContext* handle_ = nullptr;
  GraphRecorder* recorder_ = nullptr;
};

}  // namespace lenslet::cuda
