// WebP, if libwebp is there.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "lenslet/error.h"
#include "lenslet/picture.h"
#include "photos/pictures/decoders.h"
#include "tests/photos/make_png.h"
#include "tests/photos/refusal.h"

#if LENSLET_HAVE_WEBP
#include <webp/encode.h>
#endif

namespace lenslet {
namespace {

using test::append;
using test::FileBytes;
using test::make_exif;
using test::refusal;

void append_le(FileBytes& to, std::size_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
}
void append_text(FileBytes& to, std::string_view text) {
  for (const char c : text) to.push_back(static_cast<std::byte>(c));
}
FileBytes chunk(std::string_view name, const FileBytes& body) {
  FileBytes bytes;
  append_text(bytes, name);
  append_le(bytes, body.size(), 4);
  bytes.insert(bytes.end(), body.begin(), body.end());
  if (body.size() % 2 != 0) append(bytes, {0});
  return bytes;
}
FileBytes riff(std::initializer_list<FileBytes> chunks) {
  FileBytes body;
  append_text(body, "WEBP");
  for (const FileBytes& part : chunks) body.insert(body.end(), part.begin(), part.end());
  FileBytes file;
  append_text(file, "RIFF");
  append_le(file, body.size(), 4);
  file.insert(file.end(), body.begin(), body.end());
  return file;
}
/// The header of a lossless picture, without pixels.
FileBytes lossless_head(std::size_t width, std::size_t height) {
  FileBytes body;
  append(body, {0x2F});
  append_le(body, (width - 1) | (height - 1) << 14, 4);
  return chunk("VP8L", body);
}
FileBytes lossy_head(std::size_t width, std::size_t height) {
  FileBytes body;
  append(body, {0x10, 0, 0, 0x9D, 0x01, 0x2A});
  append_le(body, width, 2);
  append_le(body, height, 2);
  return chunk("VP8 ", body);
}
FileBytes extended(int flags, std::size_t width, std::size_t height) {
  FileBytes body;
  append(body, {flags, 0, 0, 0});
  append_le(body, width - 1, 3);
  append_le(body, height - 1, 3);
  return chunk("VP8X", body);
}

#if LENSLET_HAVE_WEBP

/// What a head ends with: the size that it says, or why it is refused.
std::string outcome(const FileBytes& bytes) {
  try {
    (void)photos::decode_webp(bytes, {.check_size = [](std::int64_t width, std::int64_t height) {
                                throw photos::BadImage(std::to_string(width) + " x " + std::to_string(height));
                              }});
  } catch (const photos::BadImage& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("webp/header of lossy, lossless and extended files") {
  CHECK(outcome(riff({lossless_head(300, 16384)})) == "300 x 16384");
  CHECK(outcome(riff({lossy_head(17, 5)})) == "17 x 5");
  CHECK(outcome(riff({extended(8, 17, 5), lossy_head(17, 5), chunk("EXIF", {})})) == "17 x 5");

  FileBytes frame;
  append(frame, {0, 0, 0, 0, 0, 0, 16, 0, 0, 4, 0, 0, 9, 0, 0, 0});  // at 0, 0; 17 x 5; for 9 ms
  for (const std::byte byte : lossy_head(17, 5)) frame.push_back(byte);
  CHECK(outcome(riff({extended(2, 17, 5), chunk("ANIM", FileBytes(6)), chunk("ANMF", frame)})) ==
        "animated WebP is not read");
  FileBytes second_frame = lossy_head(17, 5);
  second_frame[8] |= std::byte{1};
  const std::string damaged = "the WebP file is damaged or cut short";
  for (const FileBytes& bad : {riff({extended(0, 17, 6), lossy_head(17, 5)}), riff({extended(0, 17, 5)}),
                               riff({chunk("VP8L", {})}), riff({second_frame})})
    CHECK(outcome(bad) == damaged);
  for (const FileBytes& whole : {riff({lossless_head(3, 4)}), riff({extended(8, 17, 5), lossy_head(17, 5)})})
    for (std::size_t size = 0; size < whole.size(); ++size)
      CHECK(outcome({whole.begin(), whole.begin() + long(size)}) == damaged);
  FileBytes lying = riff({lossless_head(3, 4)});
  lying[18] = std::byte{0xFF};  // of the chunk's length
  CHECK(outcome(lying) == damaged);
}

TEST_CASE("webp/sizes over the limits are refused before decoding") {
  const auto error = refusal(riff({lossless_head(16384, 16384)}));
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::limit);
  CHECK(error->context() == "photo");
  const auto none = refusal(riff({lossy_head(0, 5)}));
  REQUIRE(none);
  CHECK(none->kind() == ErrorKind::invalid_image);
}

using Pixels = std::vector<std::uint8_t>;

FileBytes taken(std::size_t size, std::uint8_t* bytes) {
  REQUIRE(size > 0);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  FileBytes file(begin, begin + size);
  WebPFree(bytes);
  return file;
}

Pixels some_pixels(int width, int height, int channels) {
  Pixels pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) pixels.push_back(static_cast<std::uint8_t>(x * 9 + y * 5 + c * 60));
  return pixels;
}

FileBytes lossless(const Pixels& pixels, int width, int height, bool alpha = false) {
  std::uint8_t* out = nullptr;
  const std::size_t size = alpha ? WebPEncodeLosslessRGBA(pixels.data(), width, height, width * 4, &out)
                                 : WebPEncodeLosslessRGB(pixels.data(), width, height, width * 3, &out);
  return taken(size, out);
}

FileBytes lossy(const Pixels& pixels, int width, int height) {
  std::uint8_t* out = nullptr;
  const std::size_t size = WebPEncodeRGB(pixels.data(), width, height, width * 3, 95, &out);
  return taken(size, out);
}

TEST_CASE("webp/pixels: lossless to the bit, lossy near, alpha dropped, turned as EXIF says") {
  const Pixels pixels = some_pixels(13, 7, 3);
  const FileBytes file = lossless(pixels, 13, 7);
  const Picture picture = decode_image(file, "p");
  CHECK(picture.width == 13);
  CHECK(picture.height == 7);
  CHECK(picture.channels == 3);
  CHECK(picture.pixels == pixels);

  const Picture near = decode_image(lossy(pixels, 13, 7), "p");
  double sum = 0;
  for (std::size_t i = 0; i < pixels.size(); ++i) sum += std::abs(int{near.pixels.at(i)} - int{pixels[i]});
  CHECK(sum / static_cast<double>(pixels.size()) <
        12);  // colour is stored for 2 x 2 pixels; upside down it would differ by 30 and more

  // Every alpha except 0, whose colours the encoder may drop.
  const Pixels with_alpha{10, 20, 30, 1, 40, 50, 60, 128, 70, 80, 90, 255};
  CHECK(decode_image(lossless(with_alpha, 3, 1, true), "p").pixels == Pixels{10, 20, 30, 40, 50, 60, 70, 80, 90});

  const FileBytes bitstream(file.begin() + 12, file.end());
  FileBytes headed;
  append(headed, {'E', 'x', 'i', 'f', 0, 0});
  for (const std::byte byte : make_exif(3)) headed.push_back(byte);
  for (const FileBytes& exif : {make_exif(3), make_exif(3, false), headed}) {
    const Picture turned = decode_image(riff({extended(8, 13, 7), bitstream, chunk("EXIF", exif)}), "p");
    CHECK(turned.pixels.front() == pixels[pixels.size() - 3]);
    CHECK(turned.height == 7);
  }
}

TEST_CASE("webp/each truncation is refused, damage never crashes") {
  const Pixels pixels = some_pixels(40, 30, 3);
  for (const FileBytes& whole : {lossless(pixels, 40, 30), lossy(pixels, 40, 30)}) {
    CHECK(!refusal(whole));
    for (std::size_t size = 0; size < whole.size(); ++size) CHECK(refusal({whole.begin(), whole.begin() + long(size)}));
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (const int flip : {0x01, 0x10, 0xFF}) {
        FileBytes damaged = whole;
        damaged[i] ^= static_cast<std::byte>(flip);
        (void)refusal(damaged);
      }
    // Truncated, but with consistent lengths.
    FileBytes half(whole.begin() + 20, whole.begin() + long(20 + (whole.size() - 20) / 2));
    const std::string name(reinterpret_cast<const char*>(whole.data()) + 12, 4);
    CHECK(refusal(riff({chunk(name, half)})));
  }
}

#else

TEST_CASE("webp/a build without libwebp says so") {
  const auto error = refusal(riff({lossless_head(3, 4)}));
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::invalid_image);
  CHECK(error->message().find("reads no WebP") != std::string::npos);
}

#endif

}  // namespace
}  // namespace lenslet
