// The orientation, the only EXIF field that changes a picture.
#include <algorithm>
#include <array>
#include <iterator>

#include "photos/pictures/bytes.h"
#include "photos/pictures/decoders.h"

namespace lenslet::photos {

namespace {

/// Size in bytes of a TIFF value type; 0: not read.
std::size_t value_bytes(std::uint32_t type) {
  constexpr std::uint8_t bytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4};
  return type < std::size(bytes) ? bytes[type] : 0;
}
bool is_whole_number(std::uint32_t type) { return type == 3 || type == 4 || type == 6 || type == 8 || type == 9; }

}  // namespace

int exif_orientation(std::span<const std::byte> exif) {
  constexpr std::uint32_t intel = 0x4949, motorola = 0x4D4D, orientation = 274;
  constexpr std::array head{std::byte{'E'}, std::byte{'x'}, std::byte{'i'}, std::byte{'f'}, std::byte{0}, std::byte{0}};
  std::span<const std::byte> tiff = exif;
  while (tiff.size() >= head.size() && std::ranges::equal(tiff.first(head.size()), head))
    tiff = tiff.subspan(head.size());
  Bytes order(tiff);
  const std::uint32_t mark = order.u16(0);
  if (mark != intel && mark != motorola) return 1;
  Bytes bytes(tiff, mark == motorola);
  if (const std::uint32_t magic = bytes.u16(2); magic != 42 && magic != 42 << 8)
    return 1;  // in either byte order, as in Pillow
  const std::size_t directory = bytes.u32(4);
  const std::size_t entries = bytes.u16(directory);
  for (std::size_t i = 0; i < entries && !bytes.overrun(); ++i) {
    const std::size_t entry = directory + 2 + i * 12;
    const std::uint32_t tag = bytes.u16(entry), type = bytes.u16(entry + 2);
    const std::size_t size = value_bytes(type), count = bytes.u32(entry + 4);
    // Values that do not fit are stored elsewhere. If they are missing, the directory ends, as in Pillow.
    const std::size_t at = size * count <= 4 ? entry + 8 : bytes.u32(entry + 8);
    if (bytes.overrun() || (size * count > 4 && (at > tiff.size() || tiff.size() - at < size * count))) break;
    if (tag != orientation || size * count == 0) continue;
    if (!is_whole_number(type)) return 1;  // the first one counts
    const std::uint32_t value = size == 1 ? bytes.u8(at) : size == 2 ? bytes.u16(at) : bytes.u32(at);
    return !bytes.overrun() && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace lenslet::photos
