#pragma once
// Whole files, under a limit.

#include <cstdint>
#include <filesystem>
#include <string>

namespace lenslet::tool {

/// The bytes of a regular file. Error(io), or Error(limit) beyond `most_bytes`, before anything is read.
std::string read_file(const std::filesystem::path& file, std::uintmax_t most_bytes);
/// The rest of standard input; as read_file, but the limit is seen when it is passed.
std::string read_stdin(std::uintmax_t most_bytes);

}  // namespace lenslet::tool
