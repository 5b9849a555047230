// The one thing of EXIF that changes a picture.
#include "tools/pictures/bytes.h"
#include "tools/pictures/image_header.h"

namespace lenslet::tool {

int exif_orientation(std::span<const std::byte> tiff) {
  constexpr std::uint32_t intel = 0x4949, motorola = 0x4D4D, orientation = 274, type_short = 3;
  Bytes order(tiff);
  const std::uint32_t mark = order.u16(0);
  if (mark != intel && mark != motorola) return 1;
  Bytes bytes(tiff, mark == motorola);
  if (bytes.u16(2) != 42) return 1;
  const std::size_t directory = bytes.u32(4);
  const std::size_t count = bytes.u16(directory);
  for (std::size_t i = 0; i < count && !bytes.overrun(); ++i) {
    const std::size_t entry = directory + 2 + i * 12;
    if (bytes.u16(entry) != orientation) continue;
    const std::uint32_t value = bytes.u16(entry + 8);
    const bool valid = bytes.u16(entry + 2) == type_short && bytes.u32(entry + 4) == 1 && value >= 1 && value <= 8;
    return valid && !bytes.overrun() ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace lenslet::tool
