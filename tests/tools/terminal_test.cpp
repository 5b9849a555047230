#include "tools/verbs/terminal.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "lenslet/error.h"
#include "lenslet/photos.h"
#include "tests/expect_error.h"

namespace lenslet::tool {
namespace {

TEST_CASE("terminal/bar") {
  CHECK(bar(0, 4, false) == "    ");
  CHECK(bar(0.5, 4, false) == "##  ");
  CHECK(bar(7, 4, false) == "####");
  CHECK(bar(-1, 4, false) == "    ");
  CHECK(bar(std::nan(""), 2, true) == "  ");
  CHECK(bar(1, 2, true) == "\u2588\u2588");
  CHECK(bar(9.0 / 16, 2, true) == "\u2588\u258F");
}

TEST_CASE("terminal/printable") {
  CHECK(printable("a\x1b[2Jb\n\x7f\u00e9") == "a\\x1b[2Jb\\n\\x7f\u00e9");
  CHECK(printable("\xff\xe4\xb8 \u4e2d") == "\\xff\\xe4\\xb8 \u4e2d");
  CHECK(printable("\u202e\xc2\x9b") == "\\u202e\\x9b");  // right to left; 8-bit ESC [
  CHECK(printable("\"C:\\n\" 'x'") == "\"C:\\n\" 'x'");  // adds no quotes
  CHECK(printable("").empty());
}

TEST_CASE("terminal/first_line") {
  const Error error(ErrorKind::unsupported, "cannot run, the first: a\nb\n  a\nb\n  c", "net\n  .onnx");
  CHECK(first_line(error) == "net\n  .onnx: cannot run, the first: a\nb");
  CHECK(first_line(Error(ErrorKind::io, "a\n  b")) == "a\n  b");  // not a list: a name
}

TEST_CASE("terminal/progress_line") {
  CHECK(progress_line(0, 8, 0.5, 80, false) == "[                              ] 0/8 photos");
  CHECK(progress_line(2, 8, 4, 50, false) == "[#####             ] 2/8 photos, 0.5/s, 0:12 left");
  CHECK(progress_line(2, 8, 4, 40, false) == "[##      ] 2/8 photos, 0.5/s, 0:12 left");
  CHECK(progress_line(2, 8, 4, 30, false) == "2/8 photos, 0.5/s, 0:12 left");
  CHECK(progress_line(2, 8, 4, 9, false) == "2/8 phot");
  CHECK(progress_line(2, 8, 4, 0, false).empty());
  const std::string longest = progress_line(123456, 1000000, 1234.56, 80, false);
  CHECK(longest.find("] 123456/1000000 photos, 100/s, 2:26:06 left") != std::string::npos);
  CHECK(longest.size() < 80);
  CHECK(progress_line(5000, 10000, 2, 80, true).find(" 5000/10000 photos, 2500/s, 0:02 left") != std::string::npos);
}

TEST_CASE("photo_list/folders, order, what is not there") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("lenslet-photos-" + std::to_string(getpid()));
  fs::create_directories(folder / "empty");
  fs::create_directories(folder / "sub.jpg");
  for (const char* name : {"b.JPG", "a.png", "notes.txt", "c.ppm"}) std::ofstream(folder / name) << "x";
  fs::create_symlink("d.ppm", folder / "d.ppm");  // a loop
  const std::string base = folder.string();
  CHECK(list_photos({"missing.jpg", base}) ==
        std::vector<std::string>{"missing.jpg", base + "/a.png", base + "/b.JPG", base + "/c.ppm", base + "/d.ppm"});
  CHECK_ERROR(list_photos({base + "/empty"}), io, "/empty: there are no photos in this folder (--recursive looks");
  CHECK_ERROR(list_photos({base + "/empty"}, true), io, "/empty: there are no photos in this folder, nor below it");
  // Subfolders, too, but not links to folders: this one leads up again.
  fs::create_directory_symlink("..", folder / "empty" / "up");
  fs::create_directories(folder / "a" / "deep");
  for (const char* name : {"a/deep/z.webp", "a/0.png"}) std::ofstream(folder / name) << "x";
  CHECK(list_photos({base}, true) == std::vector<std::string>{base + "/a.png", base + "/a/0.png",
                                                              base + "/a/deep/z.webp", base + "/b.JPG", base + "/c.ppm",
                                                              base + "/d.ppm"});
  CHECK(list_photos({base}).size() == 4);
  CHECK(list_photos({"-"}, true) == std::vector<std::string>{"-"});
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lenslet::tool
