// The only file that sees stb_image; compiled without our warnings.
#include "tools/pictures/stb_decode.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace {

// A deflate stream of a megabyte may claim a gigabyte: stb asks for what comes out, so the limit sits in its allocator.
thread_local std::size_t allocation_limit = 0;
thread_local bool out_of_memory = false;

void* noted(void* memory) {
  out_of_memory = out_of_memory || memory == nullptr;
  return memory;
}

/// Zeroed: of a damaged file stb reads what it has not written.
void* limited_malloc(std::size_t bytes) { return bytes > allocation_limit ? nullptr : noted(std::calloc(1, bytes)); }
void* limited_realloc(void* memory, std::size_t bytes) {
  return bytes > allocation_limit ? nullptr : noted(std::realloc(memory, bytes));
}

}  // namespace

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS 32768
#define STBI_MALLOC(size) limited_malloc(size)
#define STBI_REALLOC(memory, size) limited_realloc(memory, size)
#define STBI_FREE(memory) std::free(memory)
#include <stb/stb_image.h>

namespace lenslet::tool {

namespace {

/// A scan of a damaged JPEG file may name Huffman tables that the file does not define, and stb decodes by whatever
/// its memory holds, beyond its arrays (2.27, found by fuzzing). So the file begins with all eight tables, empty: they
/// decode nothing ("bad huffman code"), and the file's own replace them.
std::vector<std::byte> with_empty_huffman_tables(std::span<const std::byte> jpeg) {
  constexpr std::size_t tables = 8, table_bytes = 17;  // class and slot, 16 counts of codes by length
  constexpr std::byte head[] = {std::byte{0xFF}, std::byte{0xD8}, std::byte{0xFF},
                                std::byte{0xC4}, std::byte{0},    std::byte{2 + tables * table_bytes}};
  std::vector<std::byte> file(std::size(head) + tables * table_bytes + jpeg.size() - 2);
  auto at = std::copy(std::begin(head), std::end(head), file.begin());
  for (std::size_t table = 0; table < tables; ++table, at += table_bytes)
    *at = static_cast<std::byte>(table / 4 << 4 | table % 4);
  std::copy(jpeg.begin() + 2, jpeg.end(), at);
  return file;
}

/// An index beyond a PNG's palette is black, and stb reads what its memory holds: so the palette becomes one of all
/// 256. Empty: it is, or there is none.
std::vector<std::byte> with_whole_palette(std::span<const std::byte> png) {
  constexpr std::size_t signature = 8, head = 8, crc = 4, whole = 3 * 256;
  const auto number = [&](std::size_t at) {
    std::size_t value = 0;
    for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | std::to_integer<std::size_t>(png[i]);
    return value;
  };
  // Its chunks are whole: read_png_header() saw them.
  for (std::size_t at = signature; at + head + crc <= png.size(); at += head + number(at) + crc) {
    const std::size_t length = number(at);
    if (std::memcmp(png.data() + at + 4, "PLTE", 4) != 0 || length >= whole) continue;
    std::vector<std::byte> file(png.begin(), png.end());
    file.insert(file.begin() + static_cast<std::ptrdiff_t>(at + head + length), whole - length, std::byte{0});
    file[at + 2] = std::byte{whole >> 8};
    file[at + 3] = std::byte{whole & 255};
    return file;
  }
  return {};
}

bool is_jpeg(std::span<const std::byte> file) {
  return file.size() >= 2 && file[0] == std::byte{0xFF} && file[1] == std::byte{0xD8};
}

}  // namespace

DecodedPixels stb_decode(std::span<const std::byte> file, int channels, std::size_t max_bytes) {
  allocation_limit = max_bytes;
  out_of_memory = false;
  DecodedPixels result;
  const std::vector<std::byte> changed = is_jpeg(file) ? with_empty_huffman_tables(file) : with_whole_palette(file);
  if (!changed.empty()) file = changed;
  int in_file = 0;
  auto* pixels = stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(file.data()), static_cast<int>(file.size()),
                                       &result.width, &result.height, &in_file, channels);
  if (pixels == nullptr && out_of_memory) throw std::bad_alloc();
  if (pixels == nullptr) {
    result.error = stbi_failure_reason();
    return result;
  }
  result.pixels = {pixels, stbi_image_free};
  return result;
}

}  // namespace lenslet::tool
