#pragma once
// PNG files for tests, uncompressed.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace lenslet::test {

using FileBytes = std::vector<std::byte>;

inline void append(FileBytes& to, std::initializer_list<int> values) {
  for (int value : values) to.push_back(static_cast<std::byte>(value));
}
inline void append_u32(FileBytes& to, std::size_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to.push_back(static_cast<std::byte>(value >> shift));
}

inline void append_chunk(FileBytes& to, std::string_view name, const FileBytes& body) {
  append_u32(to, body.size());
  const std::size_t begin = to.size();
  for (char c : name) to.push_back(static_cast<std::byte>(c));
  to.insert(to.end(), body.begin(), body.end());
  std::uint32_t crc = 0xFFFFFFFFu;
  for (std::size_t i = begin; i < to.size(); ++i) {
    crc ^= std::to_integer<std::uint32_t>(to[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
  }
  append_u32(to, ~crc);
}

/// 8-bit gray (1), RGB (3) or RGBA (4) pixels; `exif` is the TIFF structure of an eXIf chunk, which is omitted if
/// empty. The rows must fit one stored deflate block of 65535 bytes; empty blocks follow them.
inline FileBytes make_png(std::size_t height, std::size_t width, std::size_t channels,
                          const std::vector<std::uint8_t>& pixels, const FileBytes& exif = {},
                          std::size_t empty_blocks = 0, int interlaced = 0) {
  FileBytes file;
  append(file, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'});
  FileBytes header;
  append_u32(header, width);
  append_u32(header, height);
  append(header, {8, channels == 1 ? 0 : channels == 3 ? 2 : 6, 0, 0, interlaced});
  append_chunk(file, "IHDR", header);
  if (!exif.empty()) append_chunk(file, "eXIf", exif);
  FileBytes raw;
  for (std::size_t y = 0; y < height; ++y) {
    append(raw, {0});
    for (std::size_t i = 0; i < width * channels; ++i) append(raw, {pixels[y * width * channels + i]});
  }
  std::uint32_t low = 1, high = 0;  // Adler-32
  for (std::byte byte : raw) {
    low = (low + std::to_integer<std::uint32_t>(byte)) % 65521;
    high = (high + low) % 65521;
  }
  const int size = static_cast<int>(raw.size());
  FileBytes data;
  append(data, {0x78, 0x01, empty_blocks == 0 ? 1 : 0, size & 255, size >> 8, ~size & 255, (~size >> 8) & 255});
  data.insert(data.end(), raw.begin(), raw.end());
  for (std::size_t left = empty_blocks; left > 0; --left) append(data, {left == 1 ? 1 : 0, 0, 0, 255, 255});
  append_u32(data, high << 16 | low);
  append_chunk(file, "IDAT", data);
  append_chunk(file, "IEND", {});
  return file;
}

/// A TIFF structure with only an orientation.
inline FileBytes make_exif(int orientation, bool big_endian = true) {
  FileBytes tiff;
  if (big_endian)
    append(tiff, {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0, 0, 0, 0, 0});
  else
    append(tiff, {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0, 0, 0, 0, 0});
  return tiff;
}

}  // namespace lenslet::test
