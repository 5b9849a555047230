#pragma once
// Whole files, up to a limit.

#include <cstdint>
#include <filesystem>
#include <string>

#include "lenslet/error.h"

namespace lenslet::photos {

/// Error(io) because the process or the system has no descriptor or memory left: the file is not at fault, and may be
/// read later.
struct CannotOpenNow : Error {
  using Error::Error;
};

/// The bytes of a regular file. Error(io), CannotOpenNow, or Error(limit) above `most_bytes` before anything is read.
std::string read_file(const std::filesystem::path& file, std::uintmax_t most_bytes);
/// The rest of standard input; like read_file, but reads up to the limit before failing.
std::string read_stdin(std::uintmax_t most_bytes);
/// The bytes of a photo's file; "-" is standard input.
std::string read_photo(const std::filesystem::path& file);

}  // namespace lenslet::photos
