#pragma once
// Uncompressed BMP of Windows (headers of 40 to 124 bytes) and OS/2 (12 and 64), 1 to 32 bits a pixel.

#include <cstddef>
#include <span>

#include "tools/pictures/read_image.h"

namespace lenslet::tool {

/// A picture of 3 channels, as Pillow reads it. Throws BadImage. check_size(width, height) throws the caller's error
/// beyond its limits, before memory is allocated.
Picture decode_bmp(std::span<const std::byte> file, void (*check_size)(std::int64_t width, std::int64_t height));

}  // namespace lenslet::tool
