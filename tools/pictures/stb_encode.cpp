// The only file that includes stb_image_write; compiled without our warnings.
#include "tools/pictures/stb_encode.h"

#include <new>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb/stb_image_write.h>

namespace lenslet::tool {

std::string stb_encode_png(const ImageView& image) {
  std::string file;
  const auto append = [](void* to, void* data, int bytes) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data), static_cast<std::size_t>(bytes));
  };
  const int done = stbi_write_png_to_func(append, &file, static_cast<int>(image.width), static_cast<int>(image.height),
                                          static_cast<int>(image.channels), image.pixels, 0);
  if (done == 0) throw std::bad_alloc();
  return file;
}

}  // namespace lenslet::tool
