#pragma once
// Tables that fit the terminal.

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace lenslet::tool {

/// The columns that UTF-8 text takes on a terminal: two for a wide character, none for a combining one.
std::size_t columns_of(std::string_view text);
/// `text` in at most `width` columns: an ellipsis ("..." unless `utf8`) replaces its middle, or its end.
enum class Cut { middle, end };
std::string shortened(std::string_view text, std::size_t width, Cut cut, bool utf8);

/// Printable lines of at most `width` columns, broken at spaces where possible, all but the first indented. Text
/// between two backquotes, a command to be copied, stays in one line.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent = 0);

struct Column {
  enum class Kind {
    number,  ///< to the right, not shortened
    word,    ///< to the left, not shortened
    name,    ///< shortened in the middle, where rows stay distinct
    text     ///< shortened at its end
  };
  std::string_view name;  ///< its head; --columns takes it with '_' for ' '
  int rank = 0;           ///< the largest is left out first
  Kind kind = Kind::number;
  std::size_t width = 0;  ///< at least, if the table is printed in parts
  std::size_t least = 0;  ///< to which names and texts are shortened before others are left out; 0: by kind
};

/// --wide and --columns.
struct TableOptions {
  bool wide = false;
  std::vector<std::string> columns = {};
};
/// Adds both; a name that none of `tables` has is an error at once.
void add_table_options(CLI::App& verb, TableOptions& options, std::initializer_list<std::span<const Column>> tables);

/// Columns that no row fills are left out, and so are the least important ones where a line is too short. Those of
/// --columns are all printed, in that order. A table that has none of them prints nothing.
class TextTable {
 public:
  /// `columns` must outlive it.
  TextTable(std::span<const Column> columns, const TableOptions& options);
  TextTable(std::span<const Column> columns, const TableOptions& options, std::size_t width, bool utf8);
  /// Of a line.
  std::size_t width() const { return width_; }
  /// The cells, made printable. The last of fewer cells than columns reaches to the end of the line.
  void add(std::vector<std::string> cells);
  /// Head and rows, or the rows since the last call, whose widths are those of the first call.
  std::string take();
  /// Names those that do not fit, and those of --columns that no row fills; after take().
  std::string omitted() const;
  /// Prints both.
  void print();

 private:
  // How names of a column are shortened: without their first `skipped` bytes, which many share; `head` sixths of what
  // is kept stand before the ellipsis.
  struct Shortening {
    std::size_t skipped = 0, head = 4;
  };
  struct Shown {
    std::size_t index, width, whole;
    Shortening how = {};
  };
  void lay_out();
  Shortening distinct(std::size_t column, std::size_t width) const;
  std::string cell(const std::string& text, const Shown& shown) const;
  std::string line(std::span<const std::string> cells) const;

  std::span<const Column> columns_;
  std::vector<std::size_t> wanted_;  // of --columns; else empty
  std::size_t width_;                // of the terminal
  bool utf8_, laid_out_ = false;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Shown> shown_;
  std::vector<std::size_t> omitted_, empty_;  // empty_: of --columns
};

}  // namespace lenslet::tool
