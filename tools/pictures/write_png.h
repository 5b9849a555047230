#pragma once
// Pixels into a PNG file.

#include <filesystem>

#include "lenslet/image.h"

namespace lenslet::tool {

/// `image` has 1 (gray), 3 (RGB) or 4 channels (RGBA). Written beside `file` and renamed when complete: an error leaves
/// everything as it was. Error(io), and Error(limit) for more pixels than are read.
void write_png(const std::filesystem::path& file, const ImageView& image);

}  // namespace lenslet::tool
