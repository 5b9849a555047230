#include "base/cuda/cublas_library.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/cuda/run_time_library.h"

namespace lenslet::cuda {
namespace {

// All entries used have the same signature and enumerators in CUDA 12 and 13.
constexpr std::string_view sonames[] = {"libcublas.so.13", "libcublas.so.12"};
constexpr RunTimeLibrary cublas{"cuBLAS", "12 or 13", "LENSLET_CUBLAS", sonames};

CublasLibrary with_entries(OpenedLibrary opened) {
  CublasLibrary library;
  library.reason = std::move(opened.reason);
  if (opened.handle == nullptr) return library;
  library.path = std::move(opened.path);
  LibraryEntries entries(opened.handle);
  entries.find("cublasCreate_v2", library.create);
  entries.find("cublasDestroy_v2", library.destroy);
  entries.find("cublasSetStream_v2", library.set_stream);
  entries.find("cublasSetWorkspace_v2", library.set_workspace);
  entries.find("cublasSetMathMode", library.set_math_mode);
  entries.find("cublasGemmEx", library.gemm);
  entries.find("cublasGemmStridedBatchedEx", library.gemm_strided_batched);
  entries.find("cublasGetStatusName", library.status_name);
  if (entries.missing().empty()) return library;
  CublasLibrary absent;
  absent.reason = fmt::format("{} lacks {}", library.path, entries.missing());
  return absent;
}

}  // namespace

CublasLibrary load_cublas(const std::string& named) { return with_entries(open_library(cublas, named)); }

const CublasLibrary& cublas_library() {
  static const CublasLibrary library = with_entries(open_library(cublas));
  return library;
}

}  // namespace lenslet::cuda
