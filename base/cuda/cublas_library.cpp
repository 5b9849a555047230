#include "base/cuda/cublas_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace lenslet::cuda {
namespace {

// All entries used have the same signature and enumerators in CUDA 12 and 13.
constexpr std::string_view sonames[] = {"libcublas.so.13", "libcublas.so.12"};

std::string in_folder(std::string_view folder, std::string_view file) { return fmt::format("{}/{}", folder, file); }

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> places(const std::string& named) {
  std::vector<std::string> result;
  if (!named.empty()) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(named, ignored)) return {named};
    for (const std::string_view soname : sonames) result.push_back(in_folder(named, soname));
    return result;
  }
  result.assign(std::begin(sonames), std::end(sonames));
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string folder = environment(variable); !folder.empty())
      for (const std::string_view soname : sonames) result.push_back(in_folder(folder + "/lib64", soname));
  for (const std::string_view folder : {"/usr/local/cuda/lib64", "/opt/cuda/lib64"})
    for (const std::string_view soname : sonames) result.push_back(in_folder(folder, soname));
  return result;
}

// RTLD_LOCAL: does not replace another cuBLAS that the program has linked.
void* open(const std::string& place, std::string& why) {
  void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* words = dlerror();
    why = words == nullptr ? place : words;
  }
  return handle;
}

template <typename Entry>
void find(void* handle, const char* name, Entry& entry, std::string& missing) {
  entry = reinterpret_cast<Entry>(dlsym(handle, name));
  if (entry == nullptr) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
}

// Returns an error, or empty when all are found.
std::string find_entries(void* handle, CublasLibrary& library) {
  std::string missing;
  find(handle, "cublasCreate_v2", library.create, missing);
  find(handle, "cublasDestroy_v2", library.destroy, missing);
  find(handle, "cublasSetStream_v2", library.set_stream, missing);
  find(handle, "cublasSetWorkspace_v2", library.set_workspace, missing);
  find(handle, "cublasSetMathMode", library.set_math_mode, missing);
  find(handle, "cublasGemmEx", library.gemm, missing);
  find(handle, "cublasGemmStridedBatchedEx", library.gemm_strided_batched, missing);
  find(handle, "cublasGetStatusName", library.status_name, missing);
  return missing;
}

CublasLibrary absent(std::string reason) {
  CublasLibrary library;
  library.reason = std::move(reason);
  return library;
}

}  // namespace

CublasLibrary load_cublas(const std::string& named) {
  // Keeps the first loader message: later places are guesses, whose failure means nothing.
  std::string first_why;
  for (const std::string& place : places(named)) {
    std::string why;
    void* handle = open(place, why);
    if (handle == nullptr) {
      if (first_why.empty()) first_why = why;
      continue;
    }
    CublasLibrary library;
    library.path = place;
    const std::string missing = find_entries(handle, library);
    if (missing.empty()) return library;
    return absent(fmt::format("{} lacks {}", place, missing));
  }
  if (!named.empty())
    return absent(fmt::format("cuBLAS could not be loaded from LENSLET_CUBLAS={}: {}", named, first_why));
  return absent(fmt::format(
      "cuBLAS could not be loaded ({}): install CUDA's cuBLAS 12 or 13, or set LENSLET_CUBLAS to its file or folder",
      first_why));
}

const CublasLibrary& cublas_library() {
  static const CublasLibrary library = load_cublas(environment("LENSLET_CUBLAS"));
  return library;
}

}  // namespace lenslet::cuda
