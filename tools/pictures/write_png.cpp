#include "tools/pictures/write_png.h"

#include <span>
#include <string>

#include "lenslet/picture.h"
#include "lenslet/tensor_file.h"
#include "tools/pictures/stb_encode.h"

namespace lenslet::tool {

void write_png(const std::filesystem::path& file, const ImageView& image) {
  check_image_size(image.width, image.height);
  const std::string png = stb_encode_png(image);
  write_file(file, std::as_bytes(std::span(png)));
}

}  // namespace lenslet::tool
