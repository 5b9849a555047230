#include "models/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "lenslet/error.h"

namespace lenslet {

namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

void let_pages_go(const MappedFile& file) noexcept {
  if (!file.bytes.empty()) ::madvise(const_cast<std::byte*>(file.bytes.data()), file.bytes.size(), MADV_DONTNEED);
}

MappedFile map_file(const std::filesystem::path& file, std::uint64_t most_bytes) {
  if (file.empty()) throw Error(ErrorKind::invalid_argument, "the name of the file is empty");
  const std::string name = file.string();
  // O_NONBLOCK: a FIFO is refused below instead of waiting for a writer.
  const Descriptor descriptor{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.fd < 0) throw Error(ErrorKind::io, fmt::format("cannot be opened: {}", std::strerror(errno)), name);
  struct stat status {};
  if (::fstat(descriptor.fd, &status) != 0)
    throw Error(ErrorKind::io, fmt::format("cannot be examined: {}", std::strerror(errno)), name);
  if (!S_ISREG(status.st_mode))
    throw Error(ErrorKind::io, S_ISDIR(status.st_mode) ? "is a folder, not a file" : "is not a regular file", name);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes > most_bytes)
    throw Error(ErrorKind::limit, fmt::format("has {} bytes; at most {} are allowed", bytes, most_bytes), name);
  if (bytes == 0) {
    char byte = 0;
    if (::read(descriptor.fd, &byte, 1) > 0)
      throw Error(ErrorKind::io, "says that it has 0 bytes, but holds some (as in /proc): give a copy of it", name);
    return {};
  }
  const auto length = static_cast<std::size_t>(bytes);
  void* const memory = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, descriptor.fd, 0);
  if (memory == MAP_FAILED && errno == ENOMEM) throw std::bad_alloc();
  if (memory == MAP_FAILED) throw Error(ErrorKind::io, fmt::format("cannot be mapped: {}", std::strerror(errno)), name);
  std::shared_ptr<const void> owner(memory, [length](const void* p) { ::munmap(const_cast<void*>(p), length); });
  return {{static_cast<const std::byte*>(memory), length}, std::move(owner)};
}

}  // namespace lenslet
