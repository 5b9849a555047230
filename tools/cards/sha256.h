#pragma once
// The checksum that model files are known by.

#include <filesystem>
#include <string>

namespace lenslet::tool {

/// SHA-256 of the file's bytes, 64 lower-case hexadecimal digits. Error(io) when it cannot be read.
std::string sha256_of(const std::filesystem::path& file);

}  // namespace lenslet::tool
