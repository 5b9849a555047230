#include "base/cuda/cublas_library.h"

#include <string_view>

#include "base/cuda/run_time_library.h"

namespace lenslet::cuda {
namespace {

// All entries used have the same signature and enumerators in CUDA 12 and 13.
constexpr std::string_view sonames[] = {"libcublas.so.13", "libcublas.so.12"};
constexpr RunTimeLibrary cublas{"cuBLAS", "12 or 13", "LENSLET_CUBLAS", sonames};

void find(CublasLibrary& library, LibraryEntries& entries) {
  entries.find("cublasCreate_v2", library.create);
  entries.find("cublasDestroy_v2", library.destroy);
  entries.find("cublasSetStream_v2", library.set_stream);
  entries.find("cublasSetWorkspace_v2", library.set_workspace);
  entries.find("cublasSetMathMode", library.set_math_mode);
  entries.find("cublasGemmEx", library.gemm);
  entries.find("cublasGemmStridedBatchedEx", library.gemm_strided_batched);
  entries.find("cublasGetStatusName", library.status_name);
}

}  // namespace

CublasLibrary load_cublas(const std::string& named) {
  return with_entries<CublasLibrary>(open_library(cublas, named), find);
}

const CublasLibrary& cublas_library() {
  static const CublasLibrary library = with_entries<CublasLibrary>(open_library(cublas), find);
  return library;
}

}  // namespace lenslet::cuda
