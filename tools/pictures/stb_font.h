#pragma once
// A wrapper of stb_easy_font: a small font of rectangles.

#include <string_view>
#include <vector>

#include "lenslet/image.h"

namespace lenslet::tool {

inline constexpr std::int64_t font_height = 9;  ///< of a line, with what is below it

/// The first 60 characters as rectangles, from the top left corner of the text; '?' for each that is no printable
/// ASCII. A stroke is one unit wide, a character mostly 6.
std::vector<Rect> stb_text(std::string_view text);

}  // namespace lenslet::tool
