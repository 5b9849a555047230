#include "models/write_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>

#include "base/boundary.h"
#include "lenslet/error.h"
#include "lenslet/tensor_file.h"

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

/// A new file in `folder` with a unique name.
std::FILE* create_in(const fs::path& folder, fs::path& name) {
  static std::atomic<unsigned> last{0};
  std::FILE* stream = nullptr;
  do {  // a killed process may have left a file of that name
    name = folder / fmt::format(".lenslet-{}-{}", ::getpid(), ++last);
    stream = std::fopen(name.c_str(), "wxe");
  } while (stream == nullptr && errno == EEXIST);
  return stream;
}

/// The descriptor of this process that a link of /proc stands for (/dev/stdout leads there), or nothing.
std::optional<int> open_descriptor(const fs::path& link) {
  const std::string folder = link.parent_path().string(), name = link.filename().string();
  if (folder != "/proc/self/fd" && folder != fmt::format("/proc/{}/fd", ::getpid()) && folder != "/dev/fd")
    return std::nullopt;
  if (name.empty() || name.size() > 6 || name.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::stoi(name);
}

/// Where a file of that name lies or will lie; empty where links go round. At a descriptor's link it ends.
fs::path behind_links(fs::path file) {
  constexpr int most_links = 40;  // as Linux has it
  std::error_code ignored;
  for (int followed = 0; followed <= most_links; ++followed) {
    if (!fs::is_symlink(fs::symlink_status(file, ignored)) || open_descriptor(file)) return file;
    file = file.parent_path() / fs::read_symlink(file, ignored);  // which replaces the folder where it is absolute
  }
  return {};
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
  const fs::path place = behind_links(file);
  if (place.empty()) fail(ELOOP, file);
  if (const std::optional<int> descriptor = open_descriptor(place)) {  // append to the descriptor's output
    const int own = ::dup(*descriptor);
    std::FILE* const stream = own < 0 ? nullptr : ::fdopen(own, "w");
    if (const int why = stream == nullptr ? errno : write_and_close(stream, parts)) fail(why, file);
    return;
  }
  // A writable file in a folder where none may be created or renamed: another user's folder, a mounted file.
  const auto in_place = [&](int why) {
    if (!replaces || (why != EACCES && why != EPERM && why != EBUSY && why != EROFS && why != EXDEV)) fail(why, file);
    std::FILE* const stream = std::fopen(place.c_str(), "we");
    if (const int again = stream == nullptr ? errno : write_and_close(stream, parts)) fail(again, file);
  };
  fs::path name;
  std::FILE* const stream = create_in(place.parent_path(), name);
  if (stream == nullptr) return in_place(errno);
  if (replaces) {  // the owner first, where we may: it takes set-user-ID away, which another owner must not get
    const bool same = ::fchown(::fileno(stream), old.st_uid, old.st_gid) == 0;
    ::fchmod(::fileno(stream), old.st_mode & (same ? 07777U : 0777U));
  }
  int why = write_and_close(stream, parts);
  const bool complete = why == 0;
  if (complete && ::rename(name.c_str(), place.c_str()) != 0) why = errno;
  if (why == 0) return;
  ::unlink(name.c_str());
  if (complete) return in_place(why);
  fail(why, file);
}

void write_file(const fs::path& file, std::span<const std::byte> bytes) {
  at_boundary([&] { write_file(file, {bytes}); });
}

}  // namespace lenslet
