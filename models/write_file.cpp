#include "models/write_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "lenslet/error.h"

namespace lenslet {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(int why, const fs::path& file) {
  throw Error(ErrorKind::io, fmt::format("cannot be written: {}", std::strerror(why)), file.string());
}

/// 0, or the errno of what failed first.
int write_and_close(std::FILE* stream, std::initializer_list<std::span<const std::byte>> parts) {
  int why = 0;
  for (const std::span<const std::byte> part : parts)
    if (why == 0 && std::fwrite(part.data(), 1, part.size(), stream) != part.size()) why = errno;
  if (std::fclose(stream) != 0 && why == 0) why = errno;
  return why;
}

/// A new file in `folder`, which nobody else writes to.
std::FILE* create_in(const fs::path& folder, fs::path& name) {
  static std::atomic<unsigned> last{0};
  std::FILE* stream = nullptr;
  do {  // a name may be left of a process that was killed
    name = folder / fmt::format(".lenslet-{}-{}", ::getpid(), ++last);
    stream = std::fopen(name.c_str(), "wxe");
  } while (stream == nullptr && errno == EEXIST);
  return stream;
}

}  // namespace

void write_file(const fs::path& file, std::initializer_list<std::span<const std::byte>> parts) {
  struct stat old {};
  const bool replaces = ::stat(file.c_str(), &old) == 0;
  if (replaces && !S_ISREG(old.st_mode)) {
    std::FILE* const stream = std::fopen(file.c_str(), "we");
    if (const int why = stream == nullptr ? errno : write_and_close(stream, parts)) fail(why, file);
    return;
  }
  if (replaces && ::access(file.c_str(), W_OK) != 0) fail(errno, file);
  std::error_code ignored;
  const fs::path place = replaces ? fs::canonical(file, ignored) : file;
  fs::path name;
  std::FILE* const stream = create_in(place.parent_path(), name);
  if (stream == nullptr) fail(errno, file);
  if (replaces) ::fchmod(::fileno(stream), old.st_mode & 07777U);
  int why = write_and_close(stream, parts);
  if (why == 0 && ::rename(name.c_str(), place.c_str()) != 0) why = errno;
  if (why == 0) return;
  ::unlink(name.c_str());
  fail(why, file);
}

}  // namespace lenslet
