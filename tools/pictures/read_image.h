#pragma once
// Photo files into 8-bit pixels: JPEG, PNG, BMP, binary PNM and WebP, told apart by their first bytes, never by their
// name.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "lenslet/image.h"

namespace lenslet::tool {

/// Published limits (docs/limits.md), all checked before anything is decoded.
inline constexpr std::size_t max_image_file_bytes = std::size_t{512} << 20;
inline constexpr std::int64_t max_image_side = 32768;
inline constexpr std::int64_t max_image_pixels = 100'000'000;

/// Error(limit) for a picture beyond them.
void check_image_size(std::int64_t width, std::int64_t height);

/// Upright 8-bit pixels, H x W x C; C is 1 (gray) or 3 (RGB).
struct Picture {
  std::vector<std::uint8_t> pixels;
  std::int64_t height = 0, width = 0, channels = 3;
  ImageView view() const { return {pixels.data(), height, width, channels}; }
};

/// The picture in the file, turned as its EXIF orientation says. Alpha is dropped without blending, 16 bits are reduced
/// to their upper 8, Adobe CMYK becomes RGB. Damaged or truncated files and refused kinds are Error(invalid_image),
/// large ones Error(limit), unreadable ones Error(io). "-" is standard input.
Picture read_image(const std::filesystem::path& file);
/// The same from memory, `name` for messages.
Picture decode_image(std::span<const std::byte> bytes, std::string_view name);
/// Does a file that begins so (12 bytes, or all it has) look like a picture, one that is read or another?
bool begins_as_picture(std::span<const std::byte> head);

}  // namespace lenslet::tool
