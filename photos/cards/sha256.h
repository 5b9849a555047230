#pragma once
// The checksum that identifies model files.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace lenslet::photos {

/// SHA-256 of the file's bytes, 64 lower-case hexadecimal digits. Error(io) when it cannot be read.
std::string sha256_of(const std::filesystem::path& file);
std::string sha256_of(std::span<const std::byte> bytes);

}  // namespace lenslet::photos
