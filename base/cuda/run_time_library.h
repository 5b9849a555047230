#pragma once
// Libraries of CUDA that are opened at run time: lenslet does not link them. Without one only what needs it fails, with
// a message, instead of the whole program.

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lenslet::cuda {

struct RunTimeLibrary {
  std::string_view name;      ///< "cuBLAS"
  std::string_view versions;  ///< "12 or 13", for messages
  const char* variable;       ///< of the environment; names the file, or a folder that has one of `sonames`
  std::span<const std::string_view> sonames;
};

struct OpenedLibrary {
  void* handle = nullptr;
  std::string path;    ///< what was opened: a bare soname, or a file
  std::string reason;  ///< why there is none; empty when there is
};

/// Opens the library; it is never closed. `named` is a file or a folder with one under a soname; nothing else is tried
/// then. Empty: the loader's search, then the folders of CUDA toolkits. Does not throw; needs no device.
OpenedLibrary open_library(const RunTimeLibrary& library, const std::string& named);
/// The same with the environment's variable.
OpenedLibrary open_library(const RunTimeLibrary& library);

/// Finds functions in an opened library.
class LibraryEntries {
 public:
  explicit LibraryEntries(void* handle) : handle_(handle) {}
  template <typename Entry>
  void find(const char* name, Entry& entry) {
    entry = reinterpret_cast<Entry>(address(name));
  }
  /// Names of those that were not found; empty if all were.
  const std::string& missing() const { return missing_; }

 private:
  void* address(const char* name);

  void* handle_;
  std::string missing_;
};

/// A `Library` (with `path` and `reason`, as OpenedLibrary) whose entries `find(library, entries)` looks up; one that
/// lacks any says so in `reason`.
template <typename Library, typename Find>
Library with_entries(OpenedLibrary opened, const Find& find) {
  Library library;
  library.reason = std::move(opened.reason);
  if (opened.handle == nullptr) return library;
  LibraryEntries entries(opened.handle);
  find(library, entries);
  if (!entries.missing().empty()) {
    library = {};
    library.reason = opened.path + " lacks " + entries.missing();
    return library;
  }
  library.path = std::move(opened.path);
  return library;
}

}  // namespace lenslet::cuda
