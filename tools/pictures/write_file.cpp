#include "tools/pictures/write_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "lenslet/error.h"

namespace lenslet::tool {

void write_file(const std::filesystem::path& file, std::string_view bytes) {
  std::filesystem::path beside = file;
  beside += ".part";
  errno = 0;
  std::error_code error;
  {
    std::ofstream stream(beside, std::ios::binary);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
    if (!stream) error = {errno != 0 ? errno : EIO, std::generic_category()};
  }
  if (!error) std::filesystem::rename(beside, file, error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove(beside, ignored);
  throw Error(ErrorKind::io, fmt::format("cannot be written: {}", error.message()), file.string());
}

}  // namespace lenslet::tool
