#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "photos/pictures/bytes.h"
#include "photos/pictures/decoders.h"

namespace lenslet::photos {

namespace {

constexpr std::size_t file_head = 14;  // "BM", sizes, the pixels' offset
constexpr std::uint32_t os2_v1 = 12, header_sizes[] = {os2_v1, 40, 52, 56, 64, 108, 124};
constexpr std::uint32_t raw = 0, bitfields = 3;

struct Header {
  std::uint32_t bytes = 0, bits = 0, compression = raw, colors = 0;
  std::int64_t width = 0, height = 0;
  bool from_top = false;
  std::size_t end() const { return file_head + bytes; }
  std::size_t palette_entry() const { return bytes == os2_v1 ? 3 : 4; }
  bool has_palette() const { return bits <= 8; }
};

Header header_of(Bytes& file) {
  Header header;
  header.bytes = file.u32(file_head);
  if (!file.overrun() && std::ranges::find(header_sizes, header.bytes) == std::end(header_sizes))
    throw BadImage(fmt::format("BMP with a header of {} bytes is not read", header.bytes));
  if (header.bytes == os2_v1) {
    header.width = file.u16(18);
    header.height = file.u16(20);
    header.bits = file.u16(24);
  } else {
    const std::uint32_t height = file.u32(22);
    header.width = file.u32(18);
    header.from_top = height >> 24 == 0xFF;  // the height is negative
    header.height = header.from_top ? (std::int64_t{1} << 32) - height : height;
    header.bits = file.u16(28);
    header.compression = file.u32(30);
    header.colors = file.u32(46);
    (void)file.u8(header.end() - 1);
  }
  if (file.overrun()) throw BadImage("the BMP file is cut short (inside its header)");
  if (header.compression != raw && header.compression != bitfields) throw BadImage("compressed BMP is not read");
  const std::uint32_t known[] = {1, 4, 8, 16, 24, 32};
  if (std::ranges::find(known, header.bits) == std::end(known))
    throw BadImage(fmt::format("BMP of {} bits per pixel is not read", header.bits));
  if (header.has_palette() && header.compression != raw) throw BadImage("BMP with such colour masks is not read");
  if (header.has_palette() && header.colors == 0) header.colors = 1U << header.bits;
  if (header.has_palette() && header.colors > 256)
    throw BadImage(fmt::format("BMP with a palette of {} colours is not read", header.colors));
  return header;
}

/// Maps a channel, (pixel >> shift) & most, to 8 bits.
struct Channel {
  std::uint32_t shift, most;
};
using Channels = std::array<Channel, 3>;

/// Masks of red, green, blue and alpha as in Pillow, and a pixel's channel order.
struct Layout {
  std::uint32_t bits, masks[4];
  Channels channels;
};
constexpr Channels rgb555 = {{{10, 31}, {5, 31}, {0, 31}}}, rgb565 = {{{11, 31}, {5, 63}, {0, 31}}},
                   bgr = {{{16, 255}, {8, 255}, {0, 255}}}, xbgr = {{{24, 255}, {16, 255}, {8, 255}}},
                   bgxr = {{{24, 255}, {8, 255}, {0, 255}}}, rgb = {{{0, 255}, {8, 255}, {16, 255}}};
constexpr Layout layouts[] = {
    {16, {0xF800, 0x7E0, 0x1F, 0}, rgb565},          {16, {0x7C00, 0x3E0, 0x1F, 0}, rgb555},
    {24, {0xFF0000, 0xFF00, 0xFF, 0}, bgr},          {32, {0xFF0000, 0xFF00, 0xFF, 0}, bgr},
    {32, {0xFF0000, 0xFF00, 0xFF, 0xFF000000}, bgr}, {32, {0, 0, 0, 0}, bgr},
    {32, {0xFF000000, 0xFF0000, 0xFF00, 0}, xbgr},   {32, {0xFF000000, 0xFF0000, 0xFF00, 0xFF}, xbgr},
    {32, {0xFF000000, 0xFF00, 0xFF, 0}, bgxr},       {32, {0xFF000000, 0xFF00, 0xFF, 0xFF0000}, bgxr},
    {32, {0xFF, 0xFF00, 0xFF0000, 0xFF000000}, rgb},
};

/// Headers of 52 bytes and more contain the masks, shorter ones precede them; alpha's needs 56 bytes.
Channels channels_of(Bytes& file, const Header& header) {
  if (header.compression == raw) return header.bits == 16 ? rgb555 : bgr;
  std::uint32_t masks[4] = {};
  for (std::size_t i = 0; i < (header.bytes >= 56 ? 4 : 3); ++i) masks[i] = file.u32(54 + 4 * i);
  for (const Layout& layout : layouts)
    if (layout.bits == header.bits && std::equal(masks, masks + (header.bits == 32 ? 4 : 3), layout.masks))
      return layout.channels;
  throw BadImage("BMP with such colour masks is not read");
}

/// Red, green and blue of each index; black for missing entries, as in Pillow.
std::vector<std::uint8_t> palette_of(Bytes& file, const Header& header) {
  std::vector<std::uint8_t> palette;
  for (std::size_t i = 0; i < 256; ++i)
    for (std::size_t c = 0; c < 3; ++c)
      palette.push_back(static_cast<std::uint8_t>(
          i < header.colors ? file.u8(header.end() + i * header.palette_entry() + 2 - c) : 0));
  return palette;
}

}  // namespace

Decoded decode_bmp(std::span<const std::byte> file, const CheckSize& check_size) {
  Bytes bytes(file, false);
  const Header header = header_of(bytes);
  check_size(header.width, header.height);
  const std::size_t palette_bytes = header.has_palette() ? header.palette_entry() * header.colors : 0;
  std::size_t at = bytes.u32(10);
  // Some writers do not count the palette in the offset.
  if (at == header.end()) at += palette_bytes;
  if (at == 0) at = header.end() + palette_bytes + (header.compression == bitfields && header.bytes < 52 ? 12 : 0);
  const auto width = static_cast<std::size_t>(header.width), height = static_cast<std::size_t>(header.height);
  const std::size_t row_bytes = (width * header.bits + 7) / 8, stride = (width * header.bits + 31) / 32 * 4;
  if (file.size() < row_bytes || at > file.size() - row_bytes || (file.size() - row_bytes - at) / stride < height - 1)
    throw BadImage("the BMP file is cut short");

  Decoded decoded;
  Picture& picture = decoded.picture;
  picture.width = header.width;
  picture.height = header.height;
  picture.pixels.resize(width * height * 3);
  const std::vector<std::uint8_t> palette =
      header.has_palette() ? palette_of(bytes, header) : std::vector<std::uint8_t>();
  const Channels channels = header.has_palette() ? Channels{} : channels_of(bytes, header);
  for (std::size_t row = 0; row < height; ++row) {
    std::uint8_t* to = picture.pixels.data() + (header.from_top ? row : height - 1 - row) * width * 3;
    const std::byte* const from = file.data() + at + row * stride;
    for (std::size_t x = 0; x < width; ++x, to += 3) {
      std::uint32_t pixel = 0;
      if (header.bits < 8) {  // the leftmost pixel has the highest bits
        const std::size_t bit = x * header.bits;
        pixel =
            std::to_integer<std::uint32_t>(from[bit / 8]) >> (8 - header.bits - bit % 8) & ((1U << header.bits) - 1);
      } else {
        for (std::size_t i = 0, size = header.bits / 8; i < size; ++i)
          pixel |= std::to_integer<std::uint32_t>(from[x * size + i]) << (8 * i);
      }
      for (std::size_t c = 0; c < 3; ++c)
        to[c] =
            header.has_palette()
                ? palette[3 * pixel + c]
                : static_cast<std::uint8_t>((pixel >> channels[c].shift & channels[c].most) * 255 / channels[c].most);
    }
  }
  if (bytes.overrun()) throw BadImage("the BMP file is cut short");
  return decoded;
}

}  // namespace lenslet::photos
