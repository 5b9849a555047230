#include "tools/pictures/write_png.h"

#include "tools/pictures/read_image.h"
#include "tools/pictures/stb_encode.h"
#include "tools/pictures/write_file.h"

namespace lenslet::tool {

void write_png(const std::filesystem::path& file, const ImageView& image) {
  check_image_size(image.width, image.height);
  write_file(file, stb_encode_png(image));
}

}  // namespace lenslet::tool
