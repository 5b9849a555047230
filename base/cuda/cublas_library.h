#pragma once
// libcublas, opened at run time (run_time_library.h).

#include <cublas_v2.h>

#include <string>

namespace lenslet::cuda {

/// The entries of libcublas that lenslet calls: all null or all set.
struct CublasLibrary {
  decltype(&::cublasCreate_v2) create = nullptr;
  decltype(&::cublasDestroy_v2) destroy = nullptr;
  decltype(&::cublasSetStream_v2) set_stream = nullptr;
  decltype(&::cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&::cublasSetMathMode) set_math_mode = nullptr;
  // cublasGemmEx and cublasGemmStridedBatchedEx, written out because the header overloads them in C++.
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

/// As open_library(): from a file or folder, or where CUDA's libraries usually are if `named` is empty.
CublasLibrary load_cublas(const std::string& named);

/// The process-wide library, loaded at the first call; LENSLET_CUBLAS in the environment names it. Thread-safe.
const CublasLibrary& cublas_library();

}  // namespace lenslet::cuda
