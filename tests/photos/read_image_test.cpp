#include "lenslet/picture.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "lenslet/error.h"
#include "lenslet/photos.h"
#include "photos/pictures/decoders.h"
#include "tests/expect_error.h"
#include "tests/models/temp_dir.h"
#include "tests/photos/make_png.h"
#include "tests/photos/refusal.h"
#include "tests/shared_data.h"

namespace lenslet {
namespace {

using Pixels = std::vector<std::uint8_t>;
using test::FileBytes;
using test::make_exif;
using test::make_png;
using test::refusal;

FileBytes from_text(const std::string& text) {
  FileBytes bytes;
  for (char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

FileBytes whole_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return from_text({std::istreambuf_iterator<char>(file), {}});
}

/// Mean absolute difference of two pictures of equal size.
double difference(const Picture& a, const Picture& b) {
  REQUIRE(a.height == b.height);
  REQUIRE(a.width == b.width);
  REQUIRE(a.channels == b.channels);
  double sum = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(int{a.pixels[i]} - int{b.pixels[i]});
  return sum / static_cast<double>(a.pixels.size());
}

TEST_CASE("read_image/png of gray, RGB and RGBA, alpha dropped") {
  const Pixels rgb{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
  const Picture picture = decode_image(make_png(2, 3, 3, rgb), "p");
  CHECK(picture.pixels == rgb);
  CHECK(picture.height == 2);
  CHECK(picture.width == 3);
  CHECK(decode_image(make_png(3, 2, 1, {9, 8, 7, 6, 5, 4}), "p").pixels == Pixels{9, 8, 7, 6, 5, 4});
  CHECK(decode_image(make_png(1, 2, 4, {1, 2, 3, 0, 4, 5, 6, 99}), "p").pixels == Pixels{1, 2, 3, 4, 5, 6});
}

TEST_CASE("read_image/EXIF orientation, all eight") {
  // Upright is 1 2 3 / 4 5 6; stored for each value of the tag.
  struct Case {
    int orientation;
    std::size_t height, width;
    Pixels stored;
  };
  const Case cases[] = {
      {1, 2, 3, {1, 2, 3, 4, 5, 6}}, {2, 2, 3, {3, 2, 1, 6, 5, 4}}, {3, 2, 3, {6, 5, 4, 3, 2, 1}},
      {4, 2, 3, {4, 5, 6, 1, 2, 3}}, {5, 3, 2, {1, 4, 2, 5, 3, 6}}, {6, 3, 2, {3, 6, 2, 5, 1, 4}},
      {7, 3, 2, {6, 3, 5, 2, 4, 1}}, {8, 3, 2, {4, 1, 5, 2, 6, 3}},
  };
  for (const Case& c : cases)
    for (bool big_endian : {true, false}) {
      CAPTURE(c.orientation);
      const auto file = make_png(c.height, c.width, 1, c.stored, make_exif(c.orientation, big_endian));
      const Picture picture = decode_image(file, "p");
      CHECK(picture.height == 2);
      CHECK(picture.width == 3);
      CHECK(picture.pixels == Pixels{1, 2, 3, 4, 5, 6});
    }
}

TEST_CASE("exif/what makes no sense is upright") {
  for (bool big_endian : {true, false}) {
    const FileBytes whole = make_exif(6, big_endian);
    CHECK(photos::exif_orientation(whole) == 6);
    for (std::size_t size = 0; size + 8 < whole.size(); ++size)  // the value ends 6 bytes before the end
      CHECK(photos::exif_orientation(std::span(whole).first(size)) == 1);
    for (std::size_t i = 0; i < whole.size(); ++i)  // any byte may be wrong
      for (int value : {0, 1, 255}) {
        FileBytes damaged = whole;
        damaged[i] = static_cast<std::byte>(value);
        const int orientation = photos::exif_orientation(damaged);
        CHECK(orientation >= 1);
        CHECK(orientation <= 8);
      }
  }
  CHECK(photos::exif_orientation(make_exif(0)) == 1);
  CHECK(photos::exif_orientation(make_exif(9)) == 1);
}

TEST_CASE("read_image/pnm of 8 and 16 bits, other maxima, comments") {
  CHECK(decode_image(from_text("P5 # one\n2 1\n255\n\x10\x20"), "p").pixels == Pixels{0x10, 0x20});
  CHECK(decode_image(from_text("P6\n1 1 255\nabc"), "p").pixels == Pixels{'a', 'b', 'c'});
  CHECK(decode_image(from_text(std::string("P5 2 1 65535\n\x12\x34\xFF\xFF", 17)), "p").pixels == Pixels{0x12, 0xFF});
  CHECK(decode_image(from_text(std::string("P5 3 1 15\n\x00\x08\x0F", 13)), "p").pixels == Pixels{0, 136, 255});
  for (const char* bad :
       {"P5 2 2 255\nabc", "P6 1 1 255\nab", "P5 2 1 0\nab", "P5 2 1 65536\nabcd", "P5 0 1 255\n", "P5 -1 1 255\nab",
        "P5 99999999999 1 255\nab", "P5 2 1", "P5 2 1 255", "P3 1 1 255 1 2 3", "P5 2 1 15\n\x10\x01", "P7\nWIDTH 1"}) {
    CAPTURE(bad);
    const auto error = refusal(from_text(bad));
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::invalid_image);
    CHECK(error->context() == "photo");
  }
}

TEST_CASE("read_image/png damage: each truncation and each flipped byte is refused") {
  const FileBytes whole = make_png(2, 3, 3, Pixels(18, 77));
  for (std::size_t size = 0; size < whole.size(); ++size) CHECK(refusal({whole.begin(), whole.begin() + long(size)}));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    FileBytes damaged = whole;
    damaged[i] ^= std::byte{0x10};
    CHECK(refusal(damaged));
  }
  CHECK(!refusal(whole));
}

TEST_CASE("read_image/png with data after its last pixel: a little is ignored") {
  for (const int interlaced : {0, 1}) {  // of one pixel, both have the same rows
    CHECK(decode_image(make_png(1, 1, 3, {1, 2, 3}, {}, 10000, interlaced), "p").pixels == Pixels{1, 2, 3});
    const auto error = refusal(make_png(1, 1, 3, {1, 2, 3}, {}, 20000, interlaced));
    if (picture_decoders().find("libpng") == std::string_view::npos) continue;
    REQUIRE(error);
    CHECK(error->message() == "the PNG file is damaged or cut short (more data than pixels)");
  }
}

TEST_CASE("read_image/a file that a pipe replaces: one or the other") {
  const test::TempDir folder;
  const std::string png = folder / "png", pipe = folder / "pipe", next = folder / "next", photo = folder / "photo";
  const FileBytes bytes = make_png(1, 1, 1, {5});
  folder.write("png", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto put = [&](const std::string& file) {
    REQUIRE(::link(file.c_str(), next.c_str()) == 0);
    REQUIRE(::rename(next.c_str(), photo.c_str()) == 0);
  };
  put(png);
  std::jthread replacing([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      put(pipe);
      if (const int writer = ::open(photo.c_str(), O_WRONLY | O_NONBLOCK); writer >= 0) ::close(writer);
      put(png);
    }
  });
  for (int i = 0; i < 20000; ++i) {
    try {
      CHECK(read_image(photo).pixels == Pixels{5});
    } catch (const Error& error) {
      CHECK(error.message() == "this is no regular file");
    }
  }
}

TEST_CASE("read_image/a folder below that vanishes meanwhile is no error") {
  const test::TempDir folder;
  folder.write("a.png", "");
  std::jthread removing([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (int i = 0; i < 20; ++i) std::filesystem::create_directory(folder / std::to_string(i));
      for (int i = 0; i < 20; ++i) std::filesystem::remove(folder / std::to_string(i));
    }
  });
  for (int i = 0; i < 2000; ++i) CHECK(list_photos({folder.path().string()}, true).size() == 1);
  CHECK_ERROR(read_image("/dev/null"), io, "this is no regular file");
}

TEST_CASE("read_image/sizes over the limits are refused before decoding") {
  for (const auto& [height, width] : {std::pair{32769, 1}, {1, 32769}, {20000, 20000}}) {
    FileBytes file = make_png(1, 1, 1, {5});
    FileBytes header;
    test::append_u32(header, std::size_t(width));
    test::append_u32(header, std::size_t(height));
    test::append(header, {8, 0, 0, 0, 0});
    FileBytes huge(file.begin(), file.begin() + 8);
    test::append_chunk(huge, "IHDR", header);
    huge.insert(huge.end(), file.begin() + 33, file.end());
    const auto error = refusal(huge);
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::limit);
  }
}

TEST_CASE("read_image/kinds that are not read are named") {
  const std::pair<std::string, std::string> cases[] = {
      {"GIF89a..", "GIF"}, {"RIFF....WEBPVP8 ", "WebP"}, {std::string("II*\0....", 8), "TIFF"}, {"hello", "no JPEG"}};
  for (const auto& [content, word] : cases) {
    const auto error = refusal(from_text(content));
    REQUIRE(error);
    CHECK(error->message().find(word) != std::string::npos);
  }
  CHECK_ERROR(read_image("/nowhere/photo.png"), io, "/nowhere/photo.png: there is no such file");
  CHECK_ERROR(read_image("/dev/null"), io, "/dev/null: this is no regular file");
}

TEST_CASE("read_image/shared odd pictures are read right") {
  LENSLET_REQUIRE_SHARED(odd, "images/odd");
  const Picture base = read_image(odd / "cat_rgb8.png");
  CHECK(base.height == 200);
  CHECK(base.width == 300);
  for (const char* same : {"cat_rgb16.png", "cat_rgba_gradient_alpha.png", "cat.bmp", "cat_png_named.jpg"}) {
    CAPTURE(same);
    CHECK(read_image(odd / same).pixels == base.pixels);
  }
  const Picture gray = read_image(odd / "cat_gray8.png");
  CHECK(gray.channels == 1);
  CHECK(read_image(odd / "cat_gray_alpha.png").pixels == gray.pixels);
  CHECK(difference(read_image(odd / "cat_gray.jpg"), gray) < 3);
  // Lossy or with few colours: near the base; upside down, mirrored or inverted they would differ by 30 and more.
  for (const char* near : {"cat_444.jpg", "cat_422.jpg", "cat_420.jpg", "cat_progressive.jpg", "cat_cmyk.jpg",
                           "cat_palette.png", "cat_exif_orientation6.jpg"}) {
    CAPTURE(near);
    CHECK(difference(read_image(odd / near), base) < 6);
  }
  CHECK(difference(read_image(odd / "cat_q10.jpg"), base) < 15);
  CHECK(read_image(odd / "cat.ppm").width == 225);
  for (std::uint8_t pixel : read_image(odd / "cat_bilevel.png").pixels) REQUIRE((pixel == 0 || pixel == 255));
  CHECK(read_image(odd / "one_pixel.png").pixels.size() == 3);
  CHECK(read_image(odd / "strip_300x20.png").height == 20);
  CHECK(read_image(odd / "tall_37x311.jpg").width == 37);
}

TEST_CASE("read_image/shared bad pictures are all refused") {
  LENSLET_REQUIRE_SHARED(bad, "images/bad");
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(bad)) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    try {
      (void)read_image(entry.path());
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK((error.kind() == ErrorKind::invalid_image || error.kind() == ErrorKind::limit));
      CHECK(std::string(error.what()).find(name) != std::string::npos);
    }
    ++seen;
  }
  CHECK(seen == 9);
}

TEST_CASE("read_image/shared jpeg, truncated anywhere, is refused") {
  LENSLET_REQUIRE_SHARED(odd, "images/odd");
  for (const char* name : {"cat_q10.jpg", "cat_progressive.jpg", "cat_exif_orientation6.jpg"}) {
    const FileBytes whole = whole_file(odd / name);
    for (std::size_t size = 0; size < whole.size(); size += 1 + size / 50)
      CHECK(refusal({whole.begin(), whole.begin() + long(size)}));
    CHECK(refusal({whole.begin(), whole.end() - 1}));
    CHECK(!refusal(whole));
  }
}

TEST_CASE("read_image/jpeg Huffman tables of more than 256 symbols are refused") {
  FileBytes file;
  test::append(file, {0xFF, 0xD8, 0xFF, 0xC4, (19 + 510) >> 8, (19 + 510) & 255, 0x00, 255, 255});
  file.resize(file.size() + 14 + 510);
  test::append(file, {0xFF, 0xD9});
  const auto error = refusal(file);
  REQUIRE(error);
  CHECK(error->message().find("Huffman") != std::string::npos);
}

TEST_CASE("read_image/jpeg scans by Huffman tables that the file does not define are refused") {
  FileBytes file;
  test::append(file, {0xFF, 0xD8, 0xFF, 0xDB, 0, 67, 0});  // a quantization table of ones
  file.resize(file.size() + 64, std::byte{1});
  test::append(file, {0xFF, 0xC0, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0});  // 8 x 8, one component
  test::append(file, {0xFF, 0xC4, 0, 20, 0x00, 1});  // of the two tables only DC 0: one code, "0", of no bits
  file.resize(file.size() + 16);
  test::append(file, {0xFF, 0xDA, 0, 8, 1, 1, 0x03, 0, 63, 0});  // the scan refers to DC 0 and AC 3
  test::append(file, {0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0xFF, 0xD9});
  const auto error = refusal(file);
  REQUIRE(error);
  CHECK(error->message().find("uffman") != std::string::npos);
}

TEST_CASE("read_image/shared pictures, damaged bytes never crash") {
  LENSLET_REQUIRE_SHARED(odd, "images/odd");
  std::uint32_t random = 1;
  for (const char* name : {"cat_q10.jpg", "cat.bmp", "cat_progressive.jpg", "cat_cmyk.jpg", "cat.ppm"}) {
    const FileBytes whole = whole_file(odd / name);
    for (int round = 0; round < 40; ++round) {
      FileBytes damaged = whole;
      for (int i = 0; i < 4; ++i) {
        random = random * 1664525u + 1013904223u;
        // Half of the damage is in the headers.
        const std::size_t at = (random >> 8) % (i % 2 == 0 ? 700 : damaged.size());
        damaged[at] = static_cast<std::byte>(random >> 3);
      }
      (void)refusal(damaged);
    }
  }
}

}  // namespace
}  // namespace lenslet
