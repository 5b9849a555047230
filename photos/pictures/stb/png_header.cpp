#include <fmt/format.h>

#include <array>

#include "photos/pictures/bytes.h"
#include "photos/pictures/stb/image_header.h"

namespace lenslet::photos {

namespace {

constexpr std::size_t palette_bytes = 3 * 256;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
    table[i] = value;
  }
  return table;
}

/// CRC-32 of the PNG specification, annex D.
std::uint32_t crc32(std::span<const std::byte> bytes) {
  static constexpr auto table = make_crc_table();
  std::uint32_t crc = 0xFFFFFFFFu;
  for (std::byte byte : bytes) crc = table[(crc ^ std::to_integer<std::uint32_t>(byte)) & 255] ^ crc >> 8;
  return ~crc;
}

constexpr std::uint32_t chunk(const char (&name)[5]) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(name[i]);
  return value;
}

}  // namespace

ImageHeader read_png_header(std::span<const std::byte> file) {
  ImageHeader header;
  Bytes bytes(file);
  bool data = false;
  std::size_t at = 8;  // after the signature
  for (std::uint32_t name = 0; name != chunk("IEND");) {
    const std::size_t length = bytes.u32(at);
    const bool first = name == 0;
    name = bytes.u32(at + 4);
    if (bytes.overrun() || file.size() - at - 8 < length || file.size() - at - 8 - length < 4)
      throw BadImage("the PNG file is cut short");
    const auto body = file.subspan(at + 8, length);
    if (bytes.u32(at + 8 + length) != crc32(file.subspan(at + 4, length + 4)))
      throw BadImage("the PNG file is damaged (a checksum does not fit)");
    if (first) {
      if (name != chunk("IHDR") || length != 13) throw BadImage("the PNG file does not begin with its header");
      header.width = bytes.u32(at + 8);
      header.height = bytes.u32(at + 12);
      const std::uint32_t color_type = bytes.u8(at + 17);
      header.gray = color_type == 0 || color_type == 4;
    } else if (name == chunk("PLTE") && length < palette_bytes && header.decoded_as.empty()) {
      // An index beyond the palette means black, but stb reads uninitialised memory: extends the palette to 256.
      header.decoded_as.assign(file.begin(), file.end());
      const auto place = header.decoded_as.begin() + static_cast<std::ptrdiff_t>(at);
      place[2] = std::byte{palette_bytes >> 8};
      place[3] = std::byte{palette_bytes & 255};
      header.decoded_as.insert(place + static_cast<std::ptrdiff_t>(8 + length), palette_bytes - length, std::byte{0});
    } else if (name == chunk("IDAT")) {
      data = true;
    } else if (name == chunk("eXIf")) {
      header.orientation = exif_orientation(body);
    }
    at += 12 + length;
  }
  if (!data) throw BadImage("the PNG file holds no picture");
  return header;
}

}  // namespace lenslet::photos
