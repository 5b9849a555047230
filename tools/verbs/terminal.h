#pragma once
// Terminal output: bars, progress, colour, and text without control sequences.

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "lenslet/error.h"

namespace lenslet::tool {

/// The locale of the environment (LC_ALL, LC_CTYPE, LANG) is a UTF-8 one.
bool locale_is_utf8();
/// `fraction` (clamped to 0..1) of `width` columns: eighths of blocks in UTF-8, '#' in ASCII; padded to the width.
std::string bar(double fraction, std::size_t width, bool utf8);
/// What cannot be printed (control characters, bytes that are no UTF-8) as \n, \x1b, \xff: for names that come from
/// outside.
std::string printable(std::string_view text);

enum class Style { plain, bold, dim, red };
/// Whether what goes to `stream` may be coloured: it is a terminal, TERM is set and not "dumb", and NO_COLOR is unset
/// or empty (no-color.org).
bool has_colour(std::FILE* stream);
/// `text`, which holds nothing that steers a terminal, in that style where `stream` has colour.
std::string styled(Style style, std::string_view text, std::FILE* stream);

/// "lenslet: TEXT" on stderr, printable and so one line; ferror(stderr) says whether it was written.
void say(std::string_view text);
/// The same for what is only worth knowing: dim where there is colour.
void note(std::string_view text);
/// "lenslet: error: WHAT", and a line each for what an Error lists after its first line (lenslet/error.h): the first
/// few, or with `whole` all.
void say(const Error& error, bool whole = false);
/// The first line of what().
std::string first_line(const Error& error);

/// A bar on stderr while `total` things are done; silent unless stderr is a terminal and there are more than a few, or
/// where it is not `wanted`.
class Progress {
 public:
  explicit Progress(std::size_t total, bool wanted = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(std::size_t done);
  /// Takes the bar off the line, so that something else can be printed.
  void clear();

 private:
  std::size_t total_;
  bool shown_ = false, active_, utf8_;
};

}  // namespace lenslet::tool
