#include "tools/pictures/draw_boxes.h"

#include <fmt/format.h>
#include <stb/stb_easy_font.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tools/pictures/show_tensor.h"

namespace lenslet::tool {

namespace {

using Colour = std::array<std::uint8_t, 3>;

void fill(Picture& photo, const Rect& rect, const Colour& colour) {
  const std::int64_t right = std::min(rect.left + rect.width, photo.width);
  const std::int64_t bottom = std::min(rect.top + rect.height, photo.height);
  for (std::int64_t y = std::max<std::int64_t>(rect.top, 0); y < bottom; ++y)
    for (std::int64_t x = std::max<std::int64_t>(rect.left, 0); x < right; ++x)
      std::ranges::copy(colour, photo.pixels.begin() + 3 * (y * photo.width + x));
}

constexpr std::int64_t font_height = 9;

/// `text` as rectangles, from its top left corner; '?' for each character that is no printable ASCII. A stroke is one
/// pixel wide, a character mostly 6.
std::vector<Rect> strokes_of(const std::string& text) {
  std::string ascii;
  for (const char c : text)
    if ((c & 0xC0) != 0x80) ascii += c >= ' ' && c <= '~' ? c : '?';  // one for the bytes of a UTF-8 character
  struct Corner {
    float x, y, z;
    std::uint8_t color[4];
  };
  std::vector<std::array<Corner, 4>> quads(16 * ascii.size());
  const int count = stb_easy_font_print(0, 0, ascii.data(), nullptr, quads.data(),
                                        static_cast<int>(quads.size() * sizeof quads.front()));
  std::vector<Rect> strokes;
  for (const auto& quad : std::span(quads).first(static_cast<std::size_t>(count))) {
    const auto whole = [](float value) { return static_cast<std::int64_t>(value); };
    strokes.push_back({whole(quad[0].y), whole(quad[0].x), whole(quad[2].y - quad[0].y), whole(quad[2].x - quad[0].x)});
  }
  return strokes;
}

void write_text(Picture& photo, const std::string& text, std::int64_t left, std::int64_t bottom, std::int64_t scale,
                const Colour& background) {
  const std::vector<Rect> strokes = strokes_of(text);
  std::int64_t width = 0;
  for (const Rect& stroke : strokes) width = std::max(width, stroke.left + stroke.width);
  const Rect area{std::max<std::int64_t>(bottom - (font_height + 2) * scale, 0),
                  std::clamp<std::int64_t>(left, 0, std::max<std::int64_t>(photo.width - (width + 2) * scale, 0)),
                  (font_height + 2) * scale, (width + 2) * scale};
  fill(photo, area, background);
  const bool is_light = 299 * background[0] + 587 * background[1] + 114 * background[2] > 128'000;
  const Colour ink = is_light ? Colour{0, 0, 0} : Colour{255, 255, 255};
  for (const Rect& stroke : strokes)
    fill(photo,
         {area.top + (stroke.top + 1) * scale, area.left + (stroke.left + 1) * scale, stroke.height * scale,
          stroke.width * scale},
         ink);
}

}  // namespace

void draw_boxes(Picture& photo, std::span<const Detection> found) {
  if (photo.channels == 1) {
    std::vector<std::uint8_t> pixels;
    pixels.reserve(3 * photo.pixels.size());
    for (const std::uint8_t gray : photo.pixels) pixels.insert(pixels.end(), 3, gray);
    photo.pixels = std::move(pixels);
    photo.channels = 3;
  }
  const std::int64_t line = std::max<std::int64_t>(2, std::min(photo.height, photo.width) / 200);
  for (std::size_t i = found.size(); i-- > 0;) {
    const Detection& object = found[i];
    const Colour colour = class_colour(static_cast<std::uint64_t>(object.index) + 1);  // 0 is black
    const auto left = static_cast<std::int64_t>(object.box.left), top = static_cast<std::int64_t>(object.box.top);
    const std::int64_t width = static_cast<std::int64_t>(std::ceil(object.box.right)) - left;
    const std::int64_t height = static_cast<std::int64_t>(std::ceil(object.box.bottom)) - top;
    fill(photo, {top, left, line, width}, colour);
    fill(photo, {top + height - line, left, line, width}, colour);
    fill(photo, {top, left, height, line}, colour);
    fill(photo, {top, left + width - line, height, line}, colour);
    const std::string name = object.label.empty() ? fmt::to_string(object.index) : object.label.substr(0, 40);
    write_text(photo, fmt::format("{} {:.0f}%", name, 100 * object.score), left, top, line, colour);
  }
}

}  // namespace lenslet::tool
