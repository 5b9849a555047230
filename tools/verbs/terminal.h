#pragma once
// Terminal output: bars, progress, colour, and text without control sequences.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "lenslet/error.h"

namespace lenslet::tool {

/// Whether the environment's locale (LC_ALL, LC_CTYPE, LANG) is UTF-8.
bool locale_is_utf8();
/// `fraction` (clamped to 0..1) of `width` columns: eighths of blocks in UTF-8, '#' in ASCII, padded to the width.
std::string bar(double fraction, std::size_t width, bool utf8);
/// The columns of a line on `stream`: the variable COLUMNS, else those of a terminal, else 80.
std::size_t terminal_columns(std::FILE* stream);
/// Escapes control characters and invalid UTF-8 as \n, \x1b, \xff: for names from outside.
std::string printable(std::string_view text);

/// As a shell reads it: quoted where needed; printable.
std::string shell_word(const std::string& text);

enum class Style { plain, bold, dim, red };
/// Whether output to `stream` may be coloured: it is a terminal, TERM is set and not "dumb", and NO_COLOR is unset or
/// empty (no-color.org).
bool has_colour(std::FILE* stream);
/// `text`, which contains no control sequences, in that style if `stream` has colour.
std::string styled(Style style, std::string_view text, std::FILE* stream);

/// Prints "lenslet: TEXT" on stderr as one printable line; ferror(stderr) says whether it was written.
void say(std::string_view text);
/// The same for information: dim if there is colour.
void note(std::string_view text);
/// Prints "lenslet: error: WHAT" and a line for each list entry of an Error (lenslet/error.h): the first few, or
/// `whole`.
void say(const Error& error, bool whole = false);
/// The first line of what().
std::string first_line(const Error& error);

/// "[####      ] 40/100 photos, 12.5/s, 0:04 left": shorter than `columns`, with a bar where there is room.
std::string progress_line(std::size_t done, std::size_t total, double seconds, std::size_t columns, bool utf8,
                          std::string_view unit = "photos");

/// A progress line on stderr while `total` photos, or others, are done; silent unless stderr is a terminal and there
/// are more than a few.
class Progress {
 public:
  explicit Progress(std::size_t total, std::string_view unit = "photos");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Ten times a second, and at once after clear().
  void update(std::size_t done);
  /// Removes the line, so that something else can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::size_t total_;
  std::string_view unit_;
  bool shown_ = false, active_, utf8_;
  Clock::time_point begin_ = Clock::now(), drawn_{};
};

}  // namespace lenslet::tool
