#pragma once
// Writes pixels to a PNG file.

#include <filesystem>

#include "lenslet/image.h"

namespace lenslet::tool {

/// `image` has 1 (gray), 3 (RGB) or 4 channels (RGBA). It is written to a temporary file, which is renamed when
/// complete; an error changes nothing. Error(io), and Error(limit) above the pixel limit of reading.
void write_png(const std::filesystem::path& file, const ImageView& image);

}  // namespace lenslet::tool
