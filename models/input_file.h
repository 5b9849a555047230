#pragma once
// Files are read, never mapped: rewriting a mapped file would change loaded data, and truncating it would kill the
// process.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "lenslet/tensor.h"

namespace lenslet {

/// A regular file, open.
class InputFile {
 public:
  /// Identifies one state of a file.
  struct Identity {
    std::uint64_t device = 0, number = 0, bytes = 0;
    std::int64_t seconds = 0, nanoseconds = 0;  ///< of its last change
    bool operator==(const Identity&) const = default;
  };

  /// Error(io) when `file` cannot be opened or is not a regular file, Error(limit) above `most_bytes`; the context is
  /// the file's name as given.
  InputFile(const std::filesystem::path& file, std::uint64_t most_bytes);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t bytes() const { return identity_.bytes; }
  const Identity& identity() const { return identity_; }
  std::uint32_t owner() const { return owner_; }
  /// The bytes from `offset` on, which must lie in the file. Error(io), without a context, also when it has changed
  /// since it was opened.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  int descriptor_ = -1;
  Identity identity_;
  std::uint32_t owner_ = 0;
};

/// The whole file, as u8. The context of every Error is the file's name.
Tensor read_file(const std::filesystem::path& file, std::uint64_t most_bytes);

}  // namespace lenslet
