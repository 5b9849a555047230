#pragma once
// A file's bytes, mapped read-only.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace lenslet {

/// The bytes stay as long as `owner` does. The file must not be truncated or rewritten meanwhile: pages are read when
/// they are first touched.
struct MappedFile {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// Takes the pages out of this process's memory; whoever reads them again finds them in the system's cache, or on disk.
void let_pages_go(const MappedFile& file) noexcept;

/// Error(io) when `file` cannot be opened or is not a regular file, Error(limit) above `most_bytes`; the context is the
/// file's name as given.
MappedFile map_file(const std::filesystem::path& file, std::uint64_t most_bytes);

}  // namespace lenslet
