#pragma once
// Reads a photo file's header without decoding, and checks that the file is complete, which the decoder does not.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace lenslet::tool {

/// The file is damaged or of a refused kind; what() says how, without naming the file.
struct BadImage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ImageHeader {
  std::int64_t height = 0, width = 0;
  int orientation = 1;  ///< EXIF, 1 to 8
  bool gray = false;    ///< one channel of colour, with or without alpha
  /// The file as the decoder is to be given it; empty: as it is.
  std::vector<std::byte> decoded_as;
};

/// Each walks the whole file of its format and throws BadImage when it is damaged, cut short or of a kind that the
/// decoder would show wrongly. The sizes are what the file claims: the caller compares them with the limits.
ImageHeader read_jpeg_header(std::span<const std::byte> file);
ImageHeader read_png_header(std::span<const std::byte> file);
ImageHeader read_webp_header(std::span<const std::byte> file);

/// Orientation (tag 274) of the first directory of a TIFF structure, perhaps behind the head "Exif\0\0" of an APP1
/// segment: 1 (upright) to 8, in any type of whole numbers but BYTE, which Pillow does not read either. The first entry
/// counts. 1 when it is absent or the structure makes no sense: EXIF is an ornament, the picture is not refused for it.
int exif_orientation(std::span<const std::byte> exif);

}  // namespace lenslet::tool
