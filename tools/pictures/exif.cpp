// The one thing of EXIF that changes a picture.
#include "tools/pictures/bytes.h"
#include "tools/pictures/image_header.h"

namespace lenslet::tool {

namespace {

/// Bytes of a number of TIFF's types, 0: none that an orientation is written as.
std::size_t number_bytes(std::uint32_t type) {
  constexpr std::uint32_t short_type = 3, long_type = 4, signed_byte = 6, signed_short = 8, signed_long = 9;
  if (type == signed_byte) return 1;
  if (type == short_type || type == signed_short) return 2;
  return type == long_type || type == signed_long ? 4 : 0;
}

}  // namespace

int exif_orientation(std::span<const std::byte> tiff) {
  constexpr std::uint32_t intel = 0x4949, motorola = 0x4D4D, orientation = 274;
  Bytes order(tiff);
  const std::uint32_t mark = order.u16(0);
  if (mark != intel && mark != motorola) return 1;
  Bytes bytes(tiff, mark == motorola);
  if (bytes.u16(2) != 42) return 1;
  const std::size_t directory = bytes.u32(4);
  const std::size_t entries = bytes.u16(directory);
  int found = 1;  // the last one's, as Pillow has it
  for (std::size_t i = 0; i < entries && !bytes.overrun(); ++i) {
    const std::size_t entry = directory + 2 + i * 12;
    if (bytes.u16(entry) != orientation) continue;
    const std::size_t size = number_bytes(bytes.u16(entry + 2)), count = bytes.u32(entry + 4);
    // The first of several numbers, which stand elsewhere where they do not fit.
    const std::size_t at = size * count <= 4 ? entry + 8 : bytes.u32(entry + 8);
    const bool whole = size > 0 && count > 0 && at < tiff.size() && (tiff.size() - at) / size >= count;
    const std::uint32_t value = !whole ? 0 : size == 1 ? bytes.u8(at) : size == 2 ? bytes.u16(at) : bytes.u32(at);
    if (bytes.overrun()) break;
    found = value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return found;
}

}  // namespace lenslet::tool
