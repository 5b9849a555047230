#pragma once
// Reads a photo file's header without decoding, and checks that the file is complete, which the decoder does not.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace lenslet::tool {

/// The file is damaged or of a refused kind. what() describes the problem without the file's name.
struct BadImage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ImageHeader {
  std::int64_t height = 0, width = 0;
  int orientation = 1;  ///< EXIF, 1 to 8
  bool gray = false;    ///< one colour channel, with or without alpha
  /// The file to decode instead; empty: the original.
  std::vector<std::byte> decoded_as;
};

/// Each function walks the whole file. It throws BadImage if the file is damaged, truncated or of a kind that the
/// decoder would show wrongly. The sizes are the file's claims: the caller compares them with the limits.
ImageHeader read_jpeg_header(std::span<const std::byte> file);
ImageHeader read_png_header(std::span<const std::byte> file);
ImageHeader read_webp_header(std::span<const std::byte> file);

/// Orientation (tag 274), 1 (upright) to 8, from the first directory of a TIFF structure, possibly after the head
/// "Exif\0\0" of an APP1 segment. The first entry counts, in any integer type except BYTE, as in Pillow. 1 if it is
/// absent or the structure is invalid: bad EXIF is no reason to refuse a picture.
int exif_orientation(std::span<const std::byte> exif);

}  // namespace lenslet::tool
