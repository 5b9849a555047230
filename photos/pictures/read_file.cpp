#include "photos/pictures/read_file.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "lenslet/error.h"

namespace lenslet::photos {

namespace {

[[noreturn]] void too_large(const std::string& file, std::uintmax_t most_bytes) {
  throw Error(ErrorKind::limit, fmt::format("the file is larger than {} MiB", most_bytes >> 20), file);
}

}  // namespace

std::string read_file(const std::filesystem::path& file, std::uintmax_t most_bytes) {
  namespace fs = std::filesystem;
  const auto fail = [&](std::string message) { throw Error(ErrorKind::io, std::move(message), file.string()); };
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found) fail("there is no such file");
  if (error) fail(fmt::format("the file cannot be opened: {}", error.message()));
  if (fs::is_directory(status)) fail("this is a folder, not a file");
  if (!fs::is_regular_file(status)) fail("this is no regular file");
  const std::uintmax_t size = fs::file_size(file, error);
  if (error) fail(fmt::format("the file cannot be read: {}", error.message()));
  if (size > most_bytes) too_large(file.string(), most_bytes);
  std::ifstream stream(file, std::ios::binary);
  std::string bytes(size, '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(size));
  if (!stream) fail("the file cannot be read");
  if (stream.peek() != std::ifstream::traits_type::eof())
    fail(fmt::format("the file holds more than the {} bytes that it says (as in /proc): give a copy of it", size));
  return bytes;
}

std::string read_stdin(std::uintmax_t most_bytes) {
  constexpr std::size_t step = std::size_t{1} << 16;
  std::string bytes;
  for (std::size_t size = 0;; size = bytes.size()) {
    bytes.resize(size + step);
    bytes.resize(size + std::fread(bytes.data() + size, 1, step, stdin));
    if (bytes.size() > most_bytes) too_large("-", most_bytes);
    if (bytes.size() == size + step) continue;
    if (std::ferror(stdin) != 0) throw Error(ErrorKind::io, "standard input cannot be read", "-");
    return bytes;
  }
}

}  // namespace lenslet::photos
