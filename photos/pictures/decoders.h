#pragma once
// One decoder for each format. A build decodes JPEG and PNG with libjpeg-turbo and libpng (jpeg.cpp, png.cpp), or with
// stb_image (stb/).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>

#include "lenslet/picture.h"

namespace lenslet::photos {

/// The file is damaged or of a refused kind. what() describes the problem without the file's name.
struct BadImage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The picture as stored.
struct Decoded {
  Picture picture;
  int orientation = 1;  ///< EXIF, 1 to 8
};

/// For a decoder that decodes every picture whole, into 8-bit pixels alone.
inline CheckSize check_whole(const DecodeOptions& options) {
  return [&options](std::int64_t width, std::int64_t height) {
    options.check_size(width, height);
    options.reserve(3 * width * height);
  };
}

/// Each function calls `check_size`, and `reserve`, before it allocates pixels, and throws BadImage for a damaged,
/// truncated or refused file. Warnings of a library that mean lost data are errors.
Decoded decode_jpeg(std::span<const std::byte> file, const DecodeOptions& options);
struct PictureSize {
  std::int64_t height = 0, width = 0;
};
/// The size of a JPEG that a GPU may decode: upright, of 8-bit samples, gray or YCbCr, in one scan, and with an end.
/// Nothing for all other files, which decode_image() decodes or refuses, and in builds with stb_image.
std::optional<PictureSize> jpeg_for_gpu(std::span<const std::byte> file);
Decoded decode_png(std::span<const std::byte> file, const CheckSize& check_size);
/// BadImage for every file without libwebp (LENSLET_HAVE_WEBP is 0).
Decoded decode_webp(std::span<const std::byte> file, const DecodeOptions& options);
/// HEIC and AVIF. BadImage for every file without libheif (LENSLET_HAVE_HEIF is 0).
Decoded decode_heif(std::span<const std::byte> file, const DecodeOptions& options);
/// Uncompressed BMP of Windows (headers of 40 to 124 bytes) and OS/2 (12 and 64), 1 to 32 bits a pixel.
Decoded decode_bmp(std::span<const std::byte> file, const CheckSize& check_size);
/// P5 (gray) and P6 (RGB), of 8 or 16 bits.
Decoded decode_pnm(std::span<const std::byte> file, const CheckSize& check_size);

/// Orientation (tag 274), 1 (upright) to 8, from the first directory of a TIFF structure, possibly after the head
/// "Exif\0\0" of an APP1 segment. The first entry counts, in any integer type except BYTE, as in Pillow. 1 if it is
/// absent or the structure is invalid: bad EXIF is no reason to refuse a picture.
int exif_orientation(std::span<const std::byte> exif);

}  // namespace lenslet::photos
