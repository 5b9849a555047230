#include "models/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

#include "base/thread_pool.h"
#include "lenslet/error.h"

namespace lenslet {

namespace {

InputFile::Identity identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size), status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec};
}

constexpr int ended = -1;

/// 0, errno, or an unexpected end of file.
int read_part(int descriptor, std::uint64_t offset, std::span<std::byte> to) noexcept {
  while (!to.empty()) {
    // Linux reads 2 GiB at once at most.
    const std::size_t wanted = std::min(to.size(), std::size_t{1} << 30);
    const ssize_t count = ::pread(descriptor, to.data(), wanted, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return ended;
    offset += static_cast<std::uint64_t>(count);
    to = to.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& file, std::uint64_t most_bytes) {
  if (file.empty()) throw Error(ErrorKind::invalid_argument, "the name of the file is empty");
  const std::string name = file.string();
  // O_NONBLOCK: a FIFO is refused below instead of waiting for a writer.
  descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw Error(ErrorKind::io, fmt::format("cannot be opened: {}", std::strerror(errno)), name);
  try {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0)
      throw Error(ErrorKind::io, fmt::format("cannot be examined: {}", std::strerror(errno)), name);
    if (!S_ISREG(status.st_mode))
      throw Error(ErrorKind::io, S_ISDIR(status.st_mode) ? "is a folder, not a file" : "is not a regular file", name);
    identity_ = identity_of(status);
    owner_ = status.st_uid;
    if (bytes() > most_bytes)
      throw Error(ErrorKind::limit, fmt::format("has {} bytes; at most {} are allowed", bytes(), most_bytes), name);
    char byte = 0;
    if (bytes() == 0 && ::read(descriptor_, &byte, 1) > 0)
      throw Error(ErrorKind::io, "says that it has 0 bytes, but holds some (as in /proc): give a copy of it", name);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() { ::close(descriptor_); }

// Clearing and copying pages is bound by one core's speed, so large parts are split between threads.
void InputFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  constexpr std::size_t most = 4, large = std::size_t{8} << 20, huge_page = std::size_t{2} << 20;
  const std::size_t threads =
      to.size() < large ? 1 : std::min<std::size_t>(most, static_cast<std::size_t>(available_cores()));
  const std::size_t each = (to.size() / threads + huge_page - 1) / huge_page * huge_page;
  std::array<std::thread, most> others;
  std::array<int, most> failed{};
  for (std::size_t i = 1; i < threads && i * each < to.size(); ++i) {
    const auto part = to.subspan(i * each, std::min(each, to.size() - i * each));
    const auto work = [this, &failed, i, at = offset + i * each, part] {
      failed[i] = read_part(descriptor_, at, part);
    };
    try {
      others[i] = std::thread(work);
    } catch (const std::exception&) {  // no thread available
      work();
    }
  }
  failed[0] = read_part(descriptor_, offset, threads == 1 ? to : to.first(std::min(each, to.size())));
  for (std::thread& other : others)
    if (other.joinable()) other.join();
  for (const int why : failed)
    if (why > 0) throw Error(ErrorKind::io, fmt::format("cannot be read: {}", std::strerror(why)));
  struct stat status {};
  if (std::ranges::count(failed, ended) != 0 || ::fstat(descriptor_, &status) != 0 || identity_of(status) != identity_)
    throw Error(ErrorKind::io, "was changed while it was read");
}

Tensor read_file(const std::filesystem::path& file, std::uint64_t most_bytes) {
  const InputFile input(file, most_bytes);
  try {
    Tensor all(DType::u8, Shape{static_cast<std::int64_t>(input.bytes())});
    input.read(0, {static_cast<std::byte*>(all.data()), all.bytes()});
    return all;
  } catch (const Error& error) {
    throw error.within(file.string());
  }
}

}  // namespace lenslet
