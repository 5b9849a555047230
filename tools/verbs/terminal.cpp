#include "tools/verbs/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace lenslet::tool {

namespace {

constexpr std::size_t few = 3;

// Precedes each line of an Error's list. Other newlines are part of a name.
constexpr std::string_view list_mark = "\n  ";

// Where the list begins in the message; the message's end if there is none. Only models are refused for several
// reasons, and the loader checked their names; other messages may quote anything.
std::size_t list_begin(const Error& error) {
  const ErrorKind kind = error.kind();
  const bool of_model = kind == ErrorKind::invalid_model || kind == ErrorKind::unsupported || kind == ErrorKind::limit;
  return std::min(of_model ? error.message().find(list_mark) : std::string::npos, error.message().size());
}

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

std::size_t terminal_columns(std::FILE* stream) {
  const char* const variable = std::getenv("COLUMNS");
  if (const long columns = variable == nullptr ? 0 : std::strtol(variable, nullptr, 10); columns > 0)
    return static_cast<std::size_t>(columns);
  winsize window{};
  ioctl(fileno(stream), TIOCGWINSZ, &window);
  return window.ws_col > 0 ? window.ws_col : 80;
}

std::string bar(double fraction, std::size_t width, bool utf8) {
  fraction = fraction > 0 ? std::min(fraction, 1.0) : 0.0;  // NaN becomes 0
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
  // fmt's escapes; quotes and backslashes stay.
  std::string result;
  while (true) {
    const std::size_t end = std::min(text.find_first_of("\"\\"), text.size());
    const std::string quoted = fmt::format("{:?}", text.substr(0, end));
    result.append(quoted, 1, quoted.size() - 2);
    if (end == text.size()) return result;
    result += text[end];
    text.remove_prefix(end + 1);
  }
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return printable(quoted + "'");
}

bool has_colour(std::FILE* stream) {
  const auto variable = [](const char* name) -> std::string_view {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  const std::string_view term = variable("TERM");
  return variable("NO_COLOR").empty() && !term.empty() && term != "dumb" && isatty(fileno(stream)) == 1;
}

std::string styled(Style style, std::string_view text, std::FILE* stream) {
  static constexpr int codes[] = {0, 1, 2, 31};
  if (style == Style::plain || !has_colour(stream)) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", codes[static_cast<int>(style)], text);
}

namespace {

void say(std::string_view text, Style style) {
  constexpr std::string_view error = "error:";
  std::fflush(stdout);  // keeps the order if both streams go to one file
  std::string line = styled(style, fmt::format("lenslet: {}", printable(text)), stderr);
  if (text.starts_with(error)) line.replace(line.find(error), error.size(), styled(Style::red, error, stderr));
  std::fputs((line + "\n").c_str(), stderr);
}

}  // namespace

void say(std::string_view text) { say(text, Style::plain); }
void note(std::string_view text) { say(text, Style::dim); }

std::string first_line(const Error& error) {
  return Error(error.kind(), error.message().substr(0, list_begin(error)), error.context()).what();
}

void say(const Error& error, bool whole) {
  constexpr std::size_t most_listed = 8;
  say(fmt::format("error: {}", first_line(error)));
  std::string_view list = std::string_view(error.message()).substr(list_begin(error));
  std::size_t count = 0;
  while (!list.empty()) {
    list.remove_prefix(list_mark.size());
    const std::size_t end = std::min(list.find(list_mark), list.size());
    if (whole || ++count <= most_listed)
      std::fputs(fmt::format("  {}\n", printable(list.substr(0, end))).c_str(), stderr);
    list.remove_prefix(end);
  }
  if (count > most_listed)
    std::fputs(fmt::format("  and {} more; --all lists them\n", count - most_listed).c_str(), stderr);
}

std::string progress_line(std::size_t done, std::size_t total, double seconds, std::size_t columns, bool utf8,
                          std::string_view unit) {
  std::string text = fmt::format("{}/{} {}", done, total, unit);
  if (done > 0 && seconds > 0) {
    const double rate = static_cast<double>(done) / seconds;
    const auto left = static_cast<std::int64_t>(std::ceil(static_cast<double>(total - done) / rate));
    text += fmt::format(", {:.{}f}/s, ", rate, rate < 100 ? 1 : 0);
    text += left < 3600 ? fmt::format("{}:{:02} left", left / 60, left % 60)
                        : fmt::format("{}:{:02}:{:02} left", left / 3600, left / 60 % 60, left % 60);
  }
  constexpr std::size_t least = 5, most = 30, frame = 4;  // "[", "] ", and the last column, where terminals wrap
  if (text.size() + least + frame > columns) return text.substr(0, columns - std::min<std::size_t>(columns, 1));
  const std::size_t width = std::min(most, columns - text.size() - frame);
  return fmt::format("[{}] {}", bar(static_cast<double>(done) / static_cast<double>(total), width, utf8), text);
}

Progress::Progress(std::size_t total, std::string_view unit)
    : total_(total), unit_(unit), active_(total > few && isatty(STDERR_FILENO) == 1), utf8_(locale_is_utf8()) {}

Progress::~Progress() { clear(); }

void Progress::update(std::size_t done) {
  const Clock::time_point now = Clock::now();
  if (!active_ || (shown_ && now - drawn_ < std::chrono::milliseconds(100))) return;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  // The cursor goes back, so that what another program prints here begins its line.
  std::fputs(
      fmt::format("\033[K{}\r", progress_line(done, total_, seconds, terminal_columns(stderr), utf8_, unit_)).c_str(),
      stderr);
  std::fflush(stderr);
  shown_ = true;
  drawn_ = now;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace lenslet::tool
