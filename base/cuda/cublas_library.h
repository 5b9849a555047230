#pragma once
// libcublas, found and opened while the process runs. lenslet does not link it: where it is missing, everything but
// what asks for a Cublas works, and asking gives a message instead of a program that does not start.

#include <cublas_v2.h>

#include <string>

namespace lenslet::cuda {

/// The entries of libcublas that lenslet calls; all null, or all there.
struct CublasLibrary {
  decltype(&::cublasCreate_v2) create = nullptr;
  decltype(&::cublasDestroy_v2) destroy = nullptr;
  decltype(&::cublasSetStream_v2) set_stream = nullptr;
  decltype(&::cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&::cublasSetMathMode) set_math_mode = nullptr;
  // cublasGemmEx and cublasGemmStridedBatchedEx, spelled out because the header overloads them in C++.
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void* alpha,
                         const void* a, cudaDataType, int lda, const void* b, cudaDataType, int ldb, const void* beta,
                         void* c, cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  cublasStatus_t (*gemm_strided_batched)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                                         const void* alpha, const void* a, cudaDataType, int lda, long long a_stride,
                                         const void* b, cudaDataType, int ldb, long long b_stride, const void* beta,
                                         void* c, cudaDataType, int ldc, long long c_stride, int batch,
                                         cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  decltype(&::cublasGetStatusName) status_name = nullptr;

  std::string path;    ///< what was opened: a bare soname, or a file
  std::string reason;  ///< why there is none; empty when there is
};

/// Opens the library, never to be closed. `named`: a file, or a folder that holds one under its soname; only that is
/// tried. Empty: the loader's own search, then the folders a CUDA toolkit uses. Does not throw; needs no device.
CublasLibrary load_cublas(const std::string& named);

/// The process's one, loaded at the first call as the environment variable LENSLET_CUBLAS then names it. Thread-safe.
const CublasLibrary& cublas_library();

}  // namespace lenslet::cuda
