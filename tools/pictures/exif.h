#pragma once
// The one thing of EXIF that changes a picture.

#include <cstddef>
#include <span>

namespace lenslet::tool {

/// Orientation (tag 274) of the first directory of a TIFF structure, as an APP1 segment holds it after "Exif\0\0":
/// 1 (upright) to 8. 1 when it is absent or the structure makes no sense: EXIF is an ornament, the picture is not
/// refused for it.
int exif_orientation(std::span<const std::byte> tiff);

}  // namespace lenslet::tool
