#include "tools/verbs/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace lenslet::tool {

namespace {

constexpr std::size_t few = 3;

}  // namespace

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale(value);
    for (char& c : locale) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

std::string bar(double fraction, std::size_t width, bool utf8) {
  fraction = fraction > 0 ? std::min(fraction, 1.0) : 0.0;  // NaN too
  const std::size_t parts = utf8 ? 8 : 1;
  const auto filled = static_cast<std::size_t>(std::lround(fraction * static_cast<double>(width * parts)));
  std::string text;
  for (std::size_t i = 0; i < filled / parts; ++i) text += utf8 ? "\u2588" : "#";
  std::size_t columns = filled / parts;
  if (filled % parts != 0) {
    static constexpr const char* eighths[] = {"", "\u258F", "\u258E", "\u258D", "\u258C", "\u258B", "\u258A", "\u2589"};
    text += eighths[filled % parts];
    ++columns;
  }
  return text.append(width - columns, ' ');
}

std::string printable(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return result;
}

void say(std::string_view text) { std::fputs(fmt::format("lenslet: {}\n", text).c_str(), stderr); }

Progress::Progress(std::size_t total)
    : total_(total), active_(total > few && isatty(STDERR_FILENO) == 1), utf8_(locale_is_utf8()) {}

Progress::~Progress() { clear(); }

void Progress::update(std::size_t done) {
  if (!active_) return;
  const double fraction = static_cast<double>(done) / static_cast<double>(total_);
  std::fputs(fmt::format("\r[{}] {}/{} photos", bar(fraction, 30, utf8_), done, total_).c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace lenslet::tool
