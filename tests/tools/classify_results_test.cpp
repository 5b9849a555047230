// --resume: what a file of results holds, wherever a run was killed.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/expect_error.h"
#include "tools/verbs/classify_output.h"
#include "tools/verbs/csv.h"
#include "tools/verbs/results_file.h"

namespace lenslet::tool {
namespace {

EarlierResults read(const std::string& text, std::string_view format, std::size_t top = 2) {
  std::istringstream stream(text);
  return read_results(stream, format, top);
}

/// A file of results, where each whole photo ends (the header counts as one), and the photos in order.
struct File {
  std::string text{};
  std::vector<std::size_t> ends{};
  std::vector<std::string> names{"a,\"b\".jpg", "two\nlines.jpg", "\xff.jpg", "plain.jpg", "plain.jpg"};
};

File file_of(std::string_view format) {
  File file;
  if (format == "csv") file.text = csv_line(csv_columns, stdout);
  if (format == "csv") file.ends.push_back(file.text.size());
  for (const std::string& name : file.names) {
    const bool failed = name == file.names[1];
    if (format == "jsonl") {
      const nlohmann::json row = {{"file", name}, {failed ? "error" : "top", nlohmann::json::array()}};
      file.text += row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    } else {
      std::FILE* const stream = std::tmpfile();  // no terminal
      if (failed) file.text += csv_line({name, "", "", "", "", "", "a \"bad\",\nphoto"}, stream);
      for (const char* rank : {"1", "2"})
        if (!failed) file.text += csv_line({name, rank, "7", "x, \"y\"", "0.5", "", ""}, stream);
      std::fclose(stream);
    }
    file.ends.push_back(file.text.size());
  }
  return file;
}

TEST_CASE("classify_results/a file cut anywhere: its whole photos, and the rest is left to do") {
  for (const char* format : {"jsonl", "csv"}) {
    const File file = file_of(format);
    const std::size_t header = std::string_view(format) == "csv" ? 1 : 0;
    for (std::size_t bytes = 0; bytes <= file.text.size(); ++bytes) {
      CAPTURE(format);
      CAPTURE(bytes);
      std::size_t whole = 0;
      while (whole < file.ends.size() && file.ends[whole] <= bytes) ++whole;
      const EarlierResults earlier = read(file.text.substr(0, bytes), format);
      CHECK(earlier.bytes == (whole == 0 ? 0 : file.ends[whole - 1]));
      const std::size_t photos = whole > header ? whole - header : 0;
      CHECK(earlier.count == photos);
      std::vector<std::string> left = file.names;
      remove_done(left, earlier.photos, format);
      CHECK(left ==
            std::vector<std::string>(file.names.begin() + static_cast<std::ptrdiff_t>(photos), file.names.end()));
    }
  }
}

TEST_CASE("classify_results/photos that come in another order, or are new") {
  std::vector<std::string> photos{"new.jpg", "plain.jpg", "a,\"b\".jpg"};
  remove_done(photos, read(file_of("csv").text, "csv").photos, "csv");
  CHECK(photos == std::vector<std::string>{"new.jpg"});
}

TEST_CASE("classify_results/fewer classes than --top: the last photo is done again") {
  const EarlierResults earlier = read(file_of("csv").text, "csv", 5);
  CHECK(earlier.count == 4);
  CHECK(earlier.bytes == file_of("csv").ends[4]);
}

TEST_CASE("classify_results/other files are refused") {
  CHECK_ERROR(read("{\"file\": \"a\", \"top\": []}\nhello\n", "jsonl"), invalid_argument, "row 2 is not of classify");
  CHECK_ERROR(read("{\"file\": 1, \"top\": []}\n", "jsonl"), invalid_argument, "row 1");
  CHECK_ERROR(read("{\"file\": \"a\"}\n", "jsonl"), invalid_argument, "row 1");
  CHECK_ERROR(read(file_of("csv").text, "jsonl"), invalid_argument, "row 1");
  CHECK_ERROR(read(file_of("jsonl").text, "csv"), invalid_argument, "row 1 is not of classify --format csv");
  const std::string header = csv_line(csv_columns, stderr);
  CHECK_ERROR(read(header + "a,b\n", "csv"), invalid_argument, "row 2");
  // A last row without its newline is removed, but not from such files.
  for (const char* text : {"notes", "{\"fine\": 1}", "\"notes\nof many lines\n", "file;rank", "\xEF"}) {
    CHECK_ERROR(read(text, "jsonl"), invalid_argument, "row 1");
    CHECK_ERROR(read(text, "csv"), invalid_argument, "row 1");
  }
  // A quote is missing: the rows after it are no incomplete end.
  std::string text = header + "\"a.jpg,1,7,x,0.5,,\n";
  for (int i = 0; i < 10000; ++i) text += "b.jpg,1,7,x,0.5,,\n";
  CHECK_ERROR(read(text, "csv"), invalid_argument, "row 2");
}

}  // namespace
}  // namespace lenslet::tool
