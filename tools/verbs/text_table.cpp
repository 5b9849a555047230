#include "tools/verbs/text_table.h"

#include <fmt/format.h>
#include <locale.h>
#include <wchar.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "tools/verbs/suggest.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

constexpr bool stays_whole(const Column& column) {
  return column.kind == Column::Kind::number || column.kind == Column::Kind::word;
}

// To which a column is shortened before others are left out; names to half of a line.
constexpr std::size_t least_width(const Column& column, std::size_t line) {
  if (stays_whole(column)) return std::numeric_limits<std::size_t>::max();
  if (column.kind == Column::Kind::text) return column.least > 0 ? column.least : 40;
  return std::min(column.least > 0 ? column.least : 32, std::max<std::size_t>(8, line / 2));
}

std::string key(const Column& column) {
  std::string text(column.name);
  std::ranges::replace(text, ' ', '_');
  return text;
}

// The bytes of the first character.
std::size_t character_bytes(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) ++bytes;
  return bytes;
}

// 2 for a character that the C library does not know: rather too wide than beyond the terminal's edge.
std::size_t character_columns(std::string_view character) {
  if (character.size() == 1) return 1;
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  const locale_t before = uselocale(utf8);
  mbstate_t state{};
  wchar_t wide = 0;
  const bool whole = ::mbrtowc(&wide, character.data(), character.size(), &state) == character.size();
  const int width = whole ? ::wcwidth(wide) : -1;
  uselocale(before);
  return width < 0 ? 2 : static_cast<std::size_t>(width);
}

// The bytes of the longest beginning of at most `width` columns.
std::size_t fitting_bytes(std::string_view text, std::size_t width) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const std::size_t next = character_bytes(text.substr(bytes));
    const std::size_t taken = character_columns(text.substr(bytes, next));
    if (taken > width) break;
    width -= taken;
    bytes += next;
  }
  return bytes;
}

constexpr std::string_view ellipsis(bool utf8) { return utf8 ? "\u2026" : "..."; }

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = character_bytes(text.substr(at));
    columns += character_columns(text.substr(at, bytes));
  }
  return columns;
}

namespace {

constexpr std::size_t sixths = 6;

// `head` sixths of what is kept stand before the ellipsis.
std::string shortened_after(std::string_view text, std::size_t width, std::size_t head, bool utf8) {
  std::size_t all = columns_of(text);
  if (all <= width) return std::string(text);
  const std::string_view dots = ellipsis(utf8);
  const std::size_t kept = width - std::min(width, columns_of(dots));
  if (kept == 0) return std::string(text.substr(0, fitting_bytes(text, width)));
  const std::size_t before = kept * head / sixths;
  std::size_t tail = fitting_bytes(text, before);
  const std::string_view beginning = text.substr(0, tail);
  for (all -= columns_of(beginning); all > kept - before;) {
    const std::size_t bytes = character_bytes(text.substr(tail));
    all -= character_columns(text.substr(tail, bytes));
    tail += bytes;
  }
  return fmt::format("{}{}{}", beginning, dots, text.substr(tail));
}

}  // namespace

std::string shortened(std::string_view text, std::size_t width, Cut cut, bool utf8) {
  return shortened_after(text, width, cut == Cut::end ? sixths : 4, utf8);
}

namespace {

// The bytes before the next space outside of `commands`, after leading ones.
std::size_t word_bytes(std::string_view text) {
  std::size_t end = std::min(text.find_first_not_of(' '), text.size());
  for (bool inside = false; end < text.size() && (inside || text[end] != ' '); ++end)
    if (text[end] == '`') inside = !inside;
  return end;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  const std::string all = printable(text);
  std::string lines;
  std::size_t column = 0;
  const auto new_line = [&] {
    lines += '\n';
    lines.append(indent, ' ');
    column = indent;
  };
  for (std::string_view rest = all; !rest.empty();) {
    std::string_view word = rest.substr(0, word_bytes(rest));
    rest.remove_prefix(word.size());
    if (column > 0 && column + columns_of(word) > width) {
      new_line();
      word.remove_prefix(1);  // its space
    }
    const bool is_command = word.find('`') != word.rfind('`');
    while (!is_command && column + columns_of(word) > width) {
      const std::size_t fits = fitting_bytes(word, width - std::min(column, width));
      const std::size_t bytes = std::max(fits, character_bytes(word));
      lines.append(word.substr(0, bytes));
      word.remove_prefix(bytes);
      if (word.empty()) break;
      new_line();
    }
    lines.append(word);
    column += columns_of(word);
  }
  return all.empty() ? lines : lines + '\n';
}

void add_table_options(CLI::App& verb, TableOptions& options, std::initializer_list<std::span<const Column>> tables) {
  std::vector<std::string> known;
  for (const std::span<const Column> table : tables)
    for (const Column& column : table)
      if (std::ranges::find(known, key(column)) == known.end()) known.push_back(key(column));
  const std::string list = fmt::format("{{{}}}", fmt::join(known, ","));
  verb.add_flag("--wide", options.wide, "Print all columns whole, however wide the terminal is")->configurable(false);
  verb.add_option("--columns", options.columns, "Print these columns, separated by commas")
      ->configurable(false)  // no part of what is computed
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check({[known](const std::string& name) {
                 if (std::ranges::find(known, name) != known.end()) return std::string();
                 return fmt::format("there is no column '{}'{}; there are: {}", name, did_you_mean(name, known),
                                    fmt::join(known, ", "));
               },
               list});
}

TextTable::TextTable(std::span<const Column> columns, const TableOptions& options)
    : TextTable(columns, options, terminal_columns(stdout), locale_is_utf8()) {}

TextTable::TextTable(std::span<const Column> columns, const TableOptions& options, std::size_t width, bool utf8)
    : columns_(columns), width_(options.wide ? std::numeric_limits<std::size_t>::max() : width), utf8_(utf8) {
  for (const std::string& name : options.columns) {
    const auto found = std::ranges::find(columns, name, key);
    if (found != columns.end()) wanted_.push_back(static_cast<std::size_t>(found - columns.begin()));
  }
  laid_out_ = !options.columns.empty() && wanted_.empty();  // nothing is shown
}

void TextTable::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

void TextTable::lay_out() {
  laid_out_ = true;
  std::vector<std::size_t> order = wanted_;
  if (order.empty()) {
    order.resize(columns_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [this](std::size_t i) { return columns_[i].rank; });
  }
  std::size_t taken = 0;  // with a space after each
  for (const std::size_t i : order) {
    const Column& column = columns_[i];
    std::size_t whole = column.width;
    for (const auto& row : rows_)
      if (i + (row.size() < columns_.size() ? 1 : 0) < row.size()) whole = std::max(whole, columns_of(row[i]));
    if (whole == 0) {
      if (!wanted_.empty()) empty_.push_back(i);
      continue;
    }
    whole = std::max(whole, column.name.size());
    const std::size_t width = std::min(whole, std::max(least_width(column, width_), column.name.size()));
    if (!wanted_.empty() || shown_.empty() || taken + width <= width_) {
      shown_.push_back({i, width, whole});
      taken += width + 1;
    } else {
      omitted_.push_back(i);
    }
  }
  // The rest of the line goes to shortened columns, the most important first.
  for (Shown& shown : shown_) {
    const std::size_t more = std::min(shown.whole - shown.width, width_ - std::min(width_, taken - 1));
    shown.width += more;
    taken += more;
  }
  if (shown_.size() == 1 && !stays_whole(columns_[shown_[0].index]))
    shown_[0].width = std::min(shown_[0].width, width_);
  for (Shown& shown : shown_)
    if (columns_[shown.index].kind == Column::Kind::name && shown.width < shown.whole)
      shown.how = distinct(shown.index, shown.width);
  if (wanted_.empty()) std::ranges::sort(shown_, {}, &Shown::index);
  std::ranges::sort(omitted_);
}

// Names of layers often share a long beginning or end.
TextTable::Shortening TextTable::distinct(std::size_t column, std::size_t width) const {
  std::vector<std::string_view> names;
  for (const auto& row : rows_)
    if (row.size() == columns_.size() && columns_of(row[column]) > width) names.emplace_back(row[column]);
  if (names.empty()) return {};
  const auto [first, last] = std::ranges::minmax(names);
  std::size_t shared = 0;
  while (shared < std::min(first.size(), last.size()) && first[shared] == last[shared]) ++shared;
  while (shared > 0 && shared < first.size() && (static_cast<unsigned char>(first[shared]) & 0xC0) == 0x80) --shared;
  Shortening best;
  std::size_t most = 0;
  for (const Shortening& how : {Shortening{},
                                {.head = 3},
                                {.head = 2},
                                {.head = 0},
                                {.skipped = shared, .head = 3},
                                {.skipped = shared, .head = 0}}) {
    std::set<std::string> different;
    for (const std::string_view name : names) different.insert(cell(std::string(name), {column, width, width, how}));
    if (different.size() > most) {
      most = different.size();
      best = how;
    }
  }
  return best;
}

std::string TextTable::cell(const std::string& text, const Shown& shown) const {
  const auto& [index, width, whole, how] = shown;
  if (columns_of(text) <= width) return text;
  if (columns_[index].kind == Column::Kind::text) return shortened(text, width, Cut::end, utf8_);
  const std::string_view dots = ellipsis(utf8_);
  // Of a row that came later the byte may lie within a character.
  if (how.skipped == 0 || how.skipped >= text.size() ||
      (static_cast<unsigned char>(text[how.skipped]) & 0xC0) == 0x80 || width <= 2 * columns_of(dots))
    return shortened_after(text, width, how.head, utf8_);
  return fmt::format(
      "{}{}", dots,
      shortened_after(std::string_view(text).substr(how.skipped), width - columns_of(dots), how.head, utf8_));
}

std::string TextTable::line(std::span<const std::string> cells) const {
  const bool spans = cells.size() < columns_.size();
  std::string text;
  std::size_t at = 0;
  for (const Shown& shown : shown_) {
    if (spans && shown.index + 1 >= cells.size()) break;
    const std::string fitting = cell(cells[shown.index], shown);
    const std::string pad(shown.width - columns_of(fitting), ' ');
    text += columns_[shown.index].kind == Column::Kind::number ? pad + fitting : fitting + pad;
    text += ' ';
    at += shown.width + 1;
  }
  if (spans) text += shortened(cells.back(), width_ - std::min(width_, at), Cut::end, utf8_);
  text.erase(text.find_last_not_of(' ') + 1);
  return text + '\n';
}

std::string TextTable::take() {
  std::string text;
  if (!laid_out_) {
    lay_out();
    std::vector<std::string> heads;
    for (const Column& column : columns_) heads.emplace_back(column.name);
    if (!shown_.empty()) text += line(heads);
  }
  if (!shown_.empty())
    for (const auto& row : rows_) text += line(row);
  rows_.clear();
  return text;
}

std::string TextTable::omitted() const {
  std::string text;
  for (const auto& [columns, why] :
       {std::pair(&omitted_, "not shown (--wide, --columns)"), {&empty_, "nothing to show in"}}) {
    std::vector<std::string> names;
    for (const std::size_t i : *columns) names.push_back(key(columns_[i]));
    if (!names.empty()) text += wrapped(fmt::format("{}: {}", why, fmt::join(names, ", ")), width(), 2);
  }
  return text;
}

void TextTable::print() {
  fmt::print("{}", take());
  fmt::print("{}", omitted());
}

}  // namespace lenslet::tool
