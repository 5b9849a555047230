// WebP's container (RFC 9649): RIFF chunks, little-endian, each padded to an even length.
#include "tools/pictures/bytes.h"
#include "tools/pictures/image_header.h"

namespace lenslet::tool {

namespace {

constexpr std::uint32_t fourcc(const char (&name)[5]) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(name[i]);
  return value;
}

constexpr std::size_t chunk_head = 8;

// Size in a bitstream's header: a key frame of VP8 (RFC 6386, 9.1), or VP8L's signature and two times 14 bits.
void read_size(std::span<const std::byte> body, bool lossless, ImageHeader& header) {
  Bytes bytes(body, false);
  if (lossless) {
    const std::uint32_t bits = bytes.u32(1);
    if (bytes.u8(0) != 0x2F || bytes.overrun())
      throw BadImage("the WebP file's picture does not begin with its header");
    header.width = (bits & 0x3FFF) + 1;
    header.height = (bits >> 14 & 0x3FFF) + 1;
    return;
  }
  const bool key_frame = (bytes.u8(0) & 1) == 0;
  if (!key_frame || bytes.u16(3) != 0x019D || bytes.u8(5) != 0x2A || bytes.u16(8) == 0 || bytes.overrun())
    throw BadImage("the WebP file's picture does not begin with its header");
  header.width = bytes.u16(6) & 0x3FFF;
  header.height = bytes.u16(8) & 0x3FFF;
}

}  // namespace

ImageHeader read_webp_header(std::span<const std::byte> file) {
  Bytes whole(file, false);
  const std::size_t end = chunk_head + whole.u32(4);
  if (whole.overrun() || end < 12 || end > file.size()) throw BadImage("the WebP file is cut short");
  ImageHeader header;
  std::int64_t canvas_width = 0, canvas_height = 0;
  bool picture = false, has_exif = false;
  for (std::size_t at = 12; at + chunk_head <= end;) {
    const std::uint32_t name = whole.u32(at);
    const std::size_t length = whole.u32(at + 4);
    if (length > end - at - chunk_head) throw BadImage("the WebP file is cut short");
    const auto body = file.subspan(at + chunk_head, length);
    Bytes bytes(body, false);
    if (name == fourcc("VP8X")) {
      if ((bytes.u8(0) & 2) != 0) throw BadImage("animated WebP is not read");
      has_exif = (bytes.u8(0) & 8) != 0;
      canvas_width = (bytes.u16(4) | bytes.u8(6) << 16) + 1;
      canvas_height = (bytes.u16(7) | bytes.u8(9) << 16) + 1;
      if (bytes.overrun()) throw BadImage("the WebP file is cut short (inside its header)");
    } else if (!picture && (name == fourcc("VP8 ") || name == fourcc("VP8L"))) {
      picture = true;
      read_size(body, name == fourcc("VP8L"), header);
    } else if (name == fourcc("EXIF") && has_exif) {
      has_exif = false;  // the first one counts
      header.orientation = exif_orientation(body);
    }
    at += chunk_head + length + length % 2;
  }
  if (!picture) throw BadImage("the WebP file holds no picture");
  if (canvas_width != 0 && (canvas_width != header.width || canvas_height != header.height))
    throw BadImage("the WebP file contradicts itself about the size of the picture");
  return header;
}

}  // namespace lenslet::tool
