#include "base/cuda/run_time_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

namespace lenslet::cuda {
namespace {

std::string in_folder(std::string_view folder, std::string_view file) { return fmt::format("{}/{}", folder, file); }

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> places(std::span<const std::string_view> sonames, const std::string& named) {
  std::vector<std::string> result;
  if (!named.empty()) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(named, ignored)) return {named};
    for (const std::string_view soname : sonames) result.push_back(in_folder(named, soname));
    return result;
  }
  result.assign(sonames.begin(), sonames.end());
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string folder = environment(variable); !folder.empty())
      for (const std::string_view soname : sonames) result.push_back(in_folder(folder + "/lib64", soname));
  for (const std::string_view folder : {"/usr/local/cuda/lib64", "/opt/cuda/lib64"})
    for (const std::string_view soname : sonames) result.push_back(in_folder(folder, soname));
  return result;
}

}  // namespace

OpenedLibrary open_library(const RunTimeLibrary& library, const std::string& named) {
  // Keeps the first loader message: later places are guesses, whose failure means nothing.
  std::string first_why;
  for (const std::string& place : places(library.sonames, named)) {
    // RTLD_LOCAL: does not replace another copy that the program has linked.
    if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return {handle, place, {}};
    const char* words = dlerror();
    if (first_why.empty()) first_why = words == nullptr ? place : words;
  }
  OpenedLibrary absent;
  absent.reason =
      named.empty()
          ? fmt::format("{} could not be loaded ({}): install CUDA's {} {}, or set {} to its file or folder",
                        library.name, first_why, library.name, library.versions, library.variable)
          : fmt::format("{} could not be loaded from {}={}: {}", library.name, library.variable, named, first_why);
  return absent;
}

OpenedLibrary open_library(const RunTimeLibrary& library) {
  return open_library(library, environment(library.variable));
}

void* LibraryEntries::address(const char* name) {
  void* found = dlsym(handle_, name);
  if (found == nullptr) missing_ += fmt::format("{}{}", missing_.empty() ? "" : ", ", name);
  return found;
}

}  // namespace lenslet::cuda
