// Rectangles of a picture: tiles, parts, and boxes of a network's input in pixels of the photo.
#include <fmt/format.h>

#include <algorithm>

#include "base/boundary.h"
#include "base/image_plan.h"
#include "lenslet/error.h"

namespace lenslet {

Box photo_box(const ImageSpec& spec, const Rect& part, const Box& in_input) {
  return at_boundary([&] {
    const ResizePlan plan = plan_resize(part.height, part.width, spec);
    const auto x = [&](double at) {
      return static_cast<double>(part.left) + (at + static_cast<double>(plan.window.left - plan.left)) *
                                                  static_cast<double>(part.width) / static_cast<double>(plan.width);
    };
    const auto y = [&](double at) {
      return static_cast<double>(part.top) + (at + static_cast<double>(plan.window.top - plan.top)) *
                                                 static_cast<double>(part.height) / static_cast<double>(plan.height);
    };
    return Box{x(in_input.left), y(in_input.top), x(in_input.right), y(in_input.bottom)};
  });
}

std::vector<Rect> image_tiles(std::int64_t height, std::int64_t width, std::int64_t tile_height,
                              std::int64_t tile_width, std::int64_t overlap) {
  return at_boundary([&] {
    constexpr std::int64_t most = 1'000'000;
    if (height < 1 || width < 1 || tile_height < 1 || tile_width < 1)
      throw Error(ErrorKind::invalid_argument, fmt::format("tiles of {} x {} pixels in a picture of {} x {}",
                                                           tile_width, tile_height, width, height));
    if (overlap < 0 || overlap >= std::min(tile_height, tile_width))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("tiles of {} x {} pixels cannot overlap by {}", tile_width, tile_height, overlap));
    const auto count = [&](std::int64_t size, std::int64_t tile) {
      return size <= tile ? 1 : (size - tile - 1) / (tile - overlap) + 2;
    };
    const std::int64_t rows = count(height, tile_height), columns = count(width, tile_width);
    if (rows > most / columns)
      throw Error(ErrorKind::limit, fmt::format("{} rows of {} tiles are more than a million", rows, columns));
    const Rect whole{0, 0, std::min(height, tile_height), std::min(width, tile_width)};
    std::vector<Rect> tiles;
    tiles.reserve(static_cast<std::size_t>(rows * columns));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        tiles.push_back({std::min(row * (tile_height - overlap), height - whole.height),
                         std::min(column * (tile_width - overlap), width - whole.width), whole.height, whole.width});
    return tiles;
  });
}

ImageView part_of(const ImageView& image, const Rect& part) {
  return at_boundary([&] {
    if (!is_inside(part, image.height, image.width))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{} x {} pixels at x = {}, y = {} are not inside an image of {} x {}", part.width,
                              part.height, part.left, part.top, image.width, image.height));
    return ImageView{image.pixels + part.top * image.pitch() + part.left * image.channels, part.height, part.width,
                     image.channels, image.pitch()};
  });
}

}  // namespace lenslet
