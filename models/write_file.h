#pragma once
// Files that are there wholly or not at all.

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <span>

namespace lenslet {

/// Writes `parts` one after another: into a new file in the same folder, which takes the name `file` (through symlinks)
/// when it is complete, with the permissions of the file that had it; so nobody reads half of it, and an error leaves
/// everything as it was. What is no regular file (a pipe, a device) is written to directly. Error(io).
void write_file(const std::filesystem::path& file, std::initializer_list<std::span<const std::byte>> parts);

}  // namespace lenslet
