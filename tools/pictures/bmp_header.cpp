#include <fmt/format.h>

#include "tools/pictures/bytes.h"
#include "tools/pictures/image_header.h"

namespace lenslet::tool {

ImageHeader read_bmp_header(std::span<const std::byte> file) {
  ImageHeader header;
  Bytes bytes(file, false);
  const std::size_t pixels_at = bytes.u32(10);
  const std::uint32_t info_bytes = bytes.u32(14);
  const bool os2 = info_bytes == 12;
  header.width = os2 ? bytes.u16(18) : static_cast<std::int32_t>(bytes.u32(18));
  header.height = os2 ? bytes.u16(20) : static_cast<std::int32_t>(bytes.u32(22));
  const std::uint32_t bits = os2 ? bytes.u16(24) : bytes.u16(28);
  const std::uint32_t compression = os2 ? 0 : bytes.u32(30);
  if (bytes.overrun()) throw BadImage("the BMP file is cut short (inside its header)");
  if (header.height < 0) header.height = -header.height;  // rows from the top
  if (compression != 0 && compression != 3) throw BadImage("compressed BMP is not read");
  if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32)
    throw BadImage(fmt::format("BMP of {} bits per pixel is not read", bits));
  if (header.width < 0) throw BadImage("the BMP file has a negative width");
  const auto row_bytes = (static_cast<std::uint64_t>(header.width) * bits + 31) / 32 * 4;
  const auto needed = pixels_at + row_bytes * static_cast<std::uint64_t>(header.height);  // < 2^32 + 2^36 * 2^31
  if (needed > file.size()) throw BadImage("the BMP file is cut short");
  return header;
}

}  // namespace lenslet::tool
