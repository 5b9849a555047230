#pragma once
// Reads a photo file's header without decoding, and checks that the file is complete, which stb_image does not.

#include <cstdint>
#include <vector>

#include "photos/pictures/decoders.h"

namespace lenslet::photos {

struct ImageHeader {
  std::int64_t height = 0, width = 0;
  int orientation = 1;  ///< EXIF, 1 to 8
  bool gray = false;    ///< one colour channel, with or without alpha
  /// The file to decode instead; empty: the original.
  std::vector<std::byte> decoded_as;
};

/// Each function walks the whole file. It throws BadImage if the file is damaged, truncated or of a kind that stb_image
/// would show wrongly. The sizes are the file's claims: the caller compares them with the limits.
ImageHeader read_jpeg_header(std::span<const std::byte> file);
ImageHeader read_png_header(std::span<const std::byte> file);

}  // namespace lenslet::photos
