#pragma once
// Binary PNM: P5 (gray) and P6 (RGB), 8 or 16 bits.

#include <cstddef>
#include <span>

#include "tools/pictures/read_image.h"

namespace lenslet::tool {

/// Throws BadImage. check_size(width, height) throws the caller's error beyond its limits, before memory is allocated.
Picture decode_pnm(std::span<const std::byte> file, void (*check_size)(std::int64_t width, std::int64_t height));

}  // namespace lenslet::tool
