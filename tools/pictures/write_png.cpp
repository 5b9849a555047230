#include "tools/pictures/write_png.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "lenslet/error.h"
#include "tools/pictures/read_image.h"
#include "tools/pictures/stb_encode.h"

namespace lenslet::tool {

void write_png(const std::filesystem::path& file, const ImageView& image) {
  check_image_size(image.width, image.height);
  const std::string bytes = stb_encode_png(image);
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
