// The only file that includes stb_easy_font; compiled without our warnings.
#include "tools/pictures/stb_font.h"

#include <algorithm>
#include <string>

#include <stb/stb_easy_font.h>

namespace lenslet::tool {

std::vector<Rect> stb_text(std::string_view text) {
  std::string ascii;
  for (const char c : text)
    if ((c & 0xC0) != 0x80 && ascii.size() < 60)  // one for the bytes of a UTF-8 character
      ascii += c >= ' ' && c <= '~' ? c : '?';
  struct Corner {
    float x, y, z;
    unsigned char color[4];
  };
  struct Quad {
    Corner corners[4];
  };
  std::vector<Quad> quads(60 * 12);
  const int count =
      stb_easy_font_print(0, 0, ascii.data(), nullptr, quads.data(), static_cast<int>(quads.size() * sizeof(Quad)));
  std::vector<Rect> strokes;
  for (int i = 0; i < count; ++i) {
    const auto& [first, second, last, fourth] = quads[static_cast<std::size_t>(i)].corners;
    const auto whole = [](float value) { return static_cast<std::int64_t>(value); };
    strokes.push_back({whole(first.y), whole(first.x), whole(last.y - first.y), whole(last.x - first.x)});
  }
  return strokes;
}

}  // namespace lenslet::tool
