#include "photos/pictures/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "lenslet/error.h"
#include "lenslet/picture.h"

namespace lenslet::photos {

namespace {

[[noreturn]] void too_large(const std::string& file, std::uintmax_t most_bytes) {
  throw Error(ErrorKind::limit, fmt::format("the file is larger than {} MiB", most_bytes >> 20), file);
}

/// Null with errno.
std::FILE* open_at_once(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  std::FILE* const stream = ::fdopen(descriptor, "rb");
  if (stream == nullptr) {
    ::close(descriptor);
    errno = ENOMEM;
  }
  return stream;
}

}  // namespace

std::string read_file(const std::filesystem::path& file, std::uintmax_t most_bytes) {
  const auto fail = [&](std::string message) { throw Error(ErrorKind::io, std::move(message), file.string()); };
  const auto fail_to = [&](const char* verb) {
    fail(fmt::format("the file cannot be {}: {}", verb, std::generic_category().message(errno)));
  };
  // What was opened is checked, as another file may take its name; and opening a pipe does not wait for its writer.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(open_at_once(file), std::fclose);
  if (stream == nullptr && errno == ENOENT) fail("there is no such file");
  if (stream == nullptr && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
    throw CannotOpenNow(ErrorKind::io,
                        fmt::format("the file cannot be opened: {}", std::generic_category().message(errno)),
                        file.string());
  if (stream == nullptr) fail_to("opened");
  struct stat status {};
  if (::fstat(fileno(stream.get()), &status) != 0) fail_to("read");
  if (S_ISDIR(status.st_mode)) fail("this is a folder, not a file");
  if (!S_ISREG(status.st_mode)) fail("this is no regular file");
  const auto size = static_cast<std::uintmax_t>(status.st_size);
  if (size > most_bytes) too_large(file.string(), most_bytes);
  std::string bytes(size, '\0');
  if (std::fread(bytes.data(), 1, size, stream.get()) != size) fail("the file cannot be read");
  if (std::fgetc(stream.get()) != EOF)
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

std::string read_photo(const std::filesystem::path& file) {
  return file == "-" ? read_stdin(max_image_file_bytes) : read_file(file, max_image_file_bytes);
}

}  // namespace lenslet::photos
