#include "tools/verbs/text_table.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace lenslet::tool {
namespace {

using enum Column::Kind;
constexpr Column columns[] = {{"layer", 0, name}, {"op", 3, word}, {"us", 0}, {"floor us", 2}, {"why", 1, text}};

TextTable table_of(const TableOptions& options, std::size_t width, bool utf8 = true) {
  TextTable table(columns, options, width, utf8);
  table.add({"/features/features.0/Conv", "Conv", "12.5", "3.0", "least estimate: 85 us, then direct 113 us"});
  table.add({"b", "Relu", "100.0", "20.0", ""});
  return table;
}

TEST_CASE("text_table/columns_of") {
  CHECK(columns_of("abc") == 3);
  CHECK(columns_of("h\u00e9") == 2);
  CHECK(columns_of("\u4e2d\u6587") == 4);  // wide
  CHECK(columns_of("e\u0301") == 1);       // combining
  CHECK(columns_of("\U0001f680") == 2);    // a rocket
  CHECK(columns_of("\U000e1234") == 2);    // unassigned: rather too wide
  CHECK(columns_of("") == 0);
}

TEST_CASE("text_table/shortened") {
  CHECK(shortened("layer1.conv", 11, Cut::middle, true) == "layer1.conv");
  CHECK(shortened("layer1.conv", 7, Cut::middle, true) == "laye\u2026nv");
  CHECK(shortened("layer1.conv", 8, Cut::middle, false) == "lay...nv");
  CHECK(shortened("layer1.conv", 6, Cut::end, true) == "layer\u2026");
  CHECK(shortened("\u4e2d\u6587\u4e2d\u6587", 6, Cut::middle, true) == "\u4e2d\u2026\u6587");  // never half a character
  CHECK(shortened("layer", 3, Cut::middle, false) == "lay");
  CHECK(shortened("layer", 0, Cut::end, true).empty());
}

TEST_CASE("text_table/whole where there is room, else the least important columns are left out") {
  TextTable whole = table_of({}, 100);
  CHECK(whole.take() ==
        "layer                     op      us floor us why\n"
        "/features/features.0/Conv Conv  12.5      3.0 least estimate: 85 us, then direct 113 us\n"
        "b                         Relu 100.0     20.0\n");
  CHECK(whole.omitted().empty());
  TextTable less = table_of({}, 76);  // "why" goes before "floor us", which has no room then
  CHECK(less.take() ==
        "layer                        us why\n"
        "/features/features.0/Conv  12.5 least estimate: 85 us, then direct 113 us\n"
        "b                         100.0\n");
  CHECK(less.omitted() == "not shown (--wide, --columns): op, floor_us\n");
  TextTable least = table_of({}, 46);
  CHECK(least.take() ==
        "layer                     op      us floor us\n"
        "/features/features.0/Conv Conv  12.5      3.0\n"
        "b                         Relu 100.0     20.0\n");
  CHECK(table_of({}, 20).take() ==
        "layer             us\n"
        "/feature\u2026/Conv  12.5\n"
        "b              100.0\n");
  for (std::size_t width = 8; width < 90; ++width)
    for (const bool utf8 : {true, false}) {
      const std::string text = table_of({}, width, utf8).take();
      for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
        end = text.find('\n', at);
        CHECK(columns_of(text.substr(at, end - at)) <= width);
      }
    }
  CHECK(table_of({.wide = true}, 20).take().find("then direct 113 us\n") != std::string::npos);
}

TEST_CASE("text_table/--columns: these, in that order") {
  TextTable table = table_of({.columns = {"floor_us", "layer"}}, 80);
  CHECK(table.take() ==
        "floor us layer\n"
        "     3.0 /features/features.0/Conv\n"
        "    20.0 b\n");
  CHECK(table.omitted().empty());
  CHECK(table_of({.columns = {"of_another_table"}}, 80).take().empty());
  TextTable empty(columns, {.columns = {"us", "why"}}, 2, true);
  empty.add({"a", "", "12345", "", ""});
  CHECK(empty.take() == "   us\n12345\n");  // no digit is cut off
  CHECK(empty.omitted() == wrapped("nothing to show in: why", 2, 2));
}

TEST_CASE("text_table/columns that no row fills, texts to the end of the line, parts") {
  TextTable table(columns, {}, 40, true);
  table.add({"a", "", "1.0", "", ""});
  table.add({"b", "", "refused: its stride is 1, and its filters are 3 by 3"});
  CHECK(table.take() ==
        "layer  us\n"
        "a     1.0\n"
        "b     refused: its stride is 1, and its\u2026\n");
}

TEST_CASE("text_table/a column's least width, and parts whose widths are known before") {
  const Column parts[] = {{"layer", 0, name, 12, 6}, {"us", 0, number, 6}};
  TextTable table(parts, {}, 14, true);
  table.add({"a", "1"});
  CHECK(table.take() == "layer       us\na            1\n");
  table.add({"features.1", "1234.5"});
  CHECK(table.take() == "feat\u2026.1 1234.5\n");
}

TEST_CASE("text_table/shortened names stay distinct") {
  const Column only[] = {{"layer", 0, name, 0, 8}, {"us", 0}};
  const auto shown = [&](std::initializer_list<const char*> names, std::size_t width, bool utf8) {
    TextTable table(only, {}, width, utf8);
    for (const char* name : names) table.add({name, "1"});
    return table.take();
  };
  CHECK(shown({"/features/features.1/conv/Conv", "/features/features.12/conv/Conv"}, 16, true) ==
        "layer         us\n"
        "\u2026.1/conv/Conv  1\n"
        "\u202612/conv/Conv  1\n");
  CHECK(shown({"/stage/block/conv1", "/stage/block/conv2"}, 14, true) ==
        "layer       us\n"
        "/stage\u2026onv1  1\n"
        "/stage\u2026onv2  1\n");
  CHECK(shown({"a_long_name_of_one_layer"}, 14, false) == "layer       us\na_lon...yer  1\n");
  // A later part has a name that is cut within a character, and one that is shorter than what was shared.
  TextTable parts(only, {}, 14, true);
  parts.add({"the same beginning 1, and an end", "1"});
  parts.add({"the same beginning 2, and an end", "1"});
  parts.take();
  parts.add({"\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d", "1"});
  const std::string text = parts.take();
  CHECK(text.find("\\x") == std::string::npos);
  CHECK(columns_of(text.substr(0, text.find('\n'))) <= 14);
}

TEST_CASE("text_table/wrapped") {
  CHECK(wrapped("one two three", 80) == "one two three\n");
  CHECK(wrapped("one two three", 7) == "one two\nthree\n");
  CHECK(wrapped("one two three", 7, 2) == "one two\n  three\n");
  CHECK(wrapped("  title and text", 12, 8) == "  title and\n        text\n");
  CHECK(wrapped("abcdefghij", 4, 1) == "abcd\n efg\n hij\n");
  CHECK(wrapped("\u4e2d\u4e2d\u4e2d", 4) == "\u4e2d\u4e2d\n\u4e2d\n");
  CHECK(wrapped("a\nb", 80) == "a\\nb\n");
  CHECK(wrapped("run `a b c d e f`, then g", 8) == "run\n`a b c d e f`,\nthen g\n");
  CHECK(wrapped("a ` b c", 3) == "a\n` b\n c\n");
  CHECK(wrapped("", 80).empty());
  for (std::size_t width = 1; width < 5; ++width) CHECK(!wrapped("\u4e2d a\u4e2d", width, 9).empty());
}

TEST_CASE("text_table/names from a model") {
  TextTable table(columns, {}, 80, true);
  table.add({std::string(10000, 'x'), "\x1b[2J\n\xff", "1", "2", "\u202e\u4e2d"});
  const std::string text = table.take();
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("\\x1b[2J\\n\\xff") != std::string::npos);
  CHECK(text.find("\u202e") == std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}

}  // namespace
}  // namespace lenslet::tool
