#pragma once
// Decodes photo files to 8-bit pixels: JPEG, PNG, BMP, binary PNM, WebP, HEIC and AVIF, recognised by their first
// bytes.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "lenslet/image.h"

namespace lenslet {

/// Published limits (docs/limits.md), all checked before decoding.
inline constexpr std::size_t max_image_file_bytes = std::size_t{512} << 20;
inline constexpr std::int64_t max_image_side = 32768;
inline constexpr std::int64_t max_image_pixels = 100'000'000;

/// Error(limit) for a picture above them, Error(invalid_image) for one without pixels.
void check_image_size(std::int64_t width, std::int64_t height);
using CheckSize = std::function<void(std::int64_t width, std::int64_t height)>;

struct DecodeOptions {
  CheckSize check_size = check_image_size;  ///< throws the error of a refused size, the file's own
  /// Called before pixels are allocated, with the bytes that decoding takes at once, the decoder's own memory included.
  std::function<void(std::int64_t bytes)> reserve = [](std::int64_t) {};
  /// Decodes a JPEG at 1/2, 1/4 or 1/8 where no side becomes smaller than this resizes the whole photo to, by the rule
  /// of Pillow's Image.draft(). Other formats, and builds with stb_image, ignore it. Not owned; nullptr: whole.
  const ImageSpec* draft = nullptr;
};

/// Upright 8-bit pixels, H x W x C; C is 1 (gray) or 3 (RGB).
struct Picture {
  std::vector<std::uint8_t> pixels;
  std::int64_t height = 0, width = 0, channels = 3;
  /// 1, 2, 4 or 8: the photo's sides were divided by this and rounded up. photo_box() of the picture, times this, gives
  /// pixels of the photo, less than this off. Told the photo's own size, it is right to about a pixel of the input.
  std::int64_t reduction = 1;
  ImageView view() const { return {pixels.data(), height, width, channels}; }
};

/// Reads a picture and applies its EXIF orientation, or HEIF's own. Alpha is dropped without blending, 16 bits are
/// reduced to their upper 8, Adobe CMYK becomes RGB. Error(invalid_image) for damaged, truncated or refused files,
/// Error(limit) for large ones, Error(io) for unreadable ones. "-" is standard input.
Picture read_image(const std::filesystem::path& file, const DecodeOptions& options = {});
/// The same from memory; `name` appears in messages.
Picture decode_image(std::span<const std::byte> bytes, std::string_view name, const DecodeOptions& options = {});
/// The libraries that decode, with versions: "libjpeg-turbo 2.1.5, libpng 1.6.39, libwebp 1.2.4, libheif 1.15.1".
std::string_view picture_decoders();
/// Whether a file with this beginning (12 bytes, or all it has) looks like a picture, readable or not.
bool begins_as_picture(std::span<const std::byte> head);

}  // namespace lenslet
