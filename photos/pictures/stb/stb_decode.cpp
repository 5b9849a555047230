// The only file that includes stb_image; compiled without our warnings.
#include "photos/pictures/stb/stb_decode.h"

#include <cstdlib>
#include <new>

namespace {

// A deflate stream of a megabyte may expand to a gigabyte, which stb allocates: its allocator has the limit.
thread_local std::size_t allocation_limit = 0;
thread_local bool out_of_memory = false;

void* noted(void* memory) {
  out_of_memory = out_of_memory || memory == nullptr;
  return memory;
}

/// Zeroed: for a damaged file stb reads memory that it has not written.
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

namespace lenslet::photos {

DecodedPixels stb_decode(std::span<const std::byte> file, int channels, std::size_t max_bytes) {
  allocation_limit = max_bytes;
  out_of_memory = false;
  DecodedPixels result;
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

}  // namespace lenslet::photos
