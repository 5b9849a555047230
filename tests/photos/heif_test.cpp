// HEIC and AVIF, if libheif is there.

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/photos.h"
#include "lenslet/picture.h"
#include "tests/photos/make_png.h"
#include "tests/photos/refusal.h"

#if LENSLET_HAVE_HEIF
#include <libheif/heif.h>

/// For LeakSanitizer: x265, the encoder, leaks a kilobyte a picture.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libx265"; }
#endif

namespace lenslet {
namespace {

using test::append;
using test::append_u32;
using test::FileBytes;
using test::refusal;

FileBytes joined(std::initializer_list<FileBytes> parts) {
  FileBytes all;
  for (const FileBytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
FileBytes text(std::string_view letters) {
  FileBytes bytes;
  for (const char c : letters) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}
FileBytes u16(std::size_t value) {
  FileBytes bytes;
  append(bytes, {static_cast<int>(value >> 8 & 255), static_cast<int>(value & 255)});
  return bytes;
}
FileBytes u32(std::size_t value) {
  FileBytes bytes;
  append_u32(bytes, value);
  return bytes;
}
FileBytes box(std::string_view name, const FileBytes& content) {
  return joined({u32(8 + content.size()), text(name), content});
}
FileBytes ftyp(std::string_view brand) { return box("ftyp", joined({text(brand), u32(0), text("mif1")})); }

TEST_CASE("heif/a folder's photos are listed where they can be read") {
  const auto folder = std::filesystem::temp_directory_path() / ("lenslet-heif-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const char* name : {"a.png", "b.heic", "c.HEIF", "d.avif"}) std::ofstream(folder / name) << "x";
  CHECK(list_photos({folder.string()}).size() == (LENSLET_HAVE_HEIF ? 4 : 1));
  std::filesystem::remove_all(folder);
}

#if LENSLET_HAVE_HEIF

using Pixels = std::vector<std::uint8_t>;

Pixels some_pixels(int width, int height, int channels) {
  Pixels pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) pixels.push_back(static_cast<std::uint8_t>(x * 3 + y * 2 + c * 60));
  return pixels;
}

void ok(const heif_error& error) { REQUIRE_MESSAGE(error.code == heif_error_Ok, std::string(error.message)); }

struct Encoding {
  heif_compression_format format = heif_compression_HEVC;
  int channels = 3, bits = 8;
  bool lossless = true;
  heif_orientation orientation = heif_orientation_normal;
  bool exif = true;  ///< that says an orientation of 6
};

/// By libheif; of more than 8 bits the pixels are the upper 8. Empty without an encoder.
FileBytes encoded(const Pixels& pixels, int width, int height, const Encoding& how = {}) {
  FileBytes file;
  heif_context* context = heif_context_alloc();
  heif_encoder* encoder = nullptr;
  if (heif_context_get_encoder_for_format(context, how.format, &encoder).code == heif_error_Ok) {
    const int bytes = how.channels * (how.bits > 8 ? 2 : 1);
    const heif_chroma chroma = how.bits > 8        ? heif_chroma_interleaved_RRGGBB_BE
                               : how.channels == 4 ? heif_chroma_interleaved_RGBA
                                                   : heif_chroma_interleaved_RGB;
    heif_image* image = nullptr;
    ok(heif_image_create(width, height, heif_colorspace_RGB, chroma, &image));
    ok(heif_image_add_plane(image, heif_channel_interleaved, width, height, how.bits));
    int stride = 0;
    std::uint8_t* plane = heif_image_get_plane(image, heif_channel_interleaved, &stride);
    for (int y = 0; y < height; ++y)
      for (int i = 0; i < width * how.channels; ++i) {
        const int value = pixels[static_cast<std::size_t>(y * width * how.channels + i)] << (how.bits - 8);
        std::uint8_t* to = plane + y * stride + i * bytes / how.channels;
        if (how.bits > 8) *to++ = static_cast<std::uint8_t>(value >> 8);
        *to = static_cast<std::uint8_t>(value);
      }
    heif_color_profile_nclx* nclx = heif_nclx_color_profile_alloc();
    nclx->matrix_coefficients = heif_matrix_coefficients_RGB_GBR;
    nclx->full_range_flag = 1;
    heif_encoding_options* options = heif_encoding_options_alloc();
    options->macOS_compatibility_workaround = 0;
    options->image_orientation = how.orientation;
    if (how.lossless) {
      ok(heif_encoder_set_lossless(encoder, 1));
      ok(heif_encoder_set_parameter_string(encoder, "chroma", "444"));
      options->output_nclx_profile = nclx;
    }
    heif_image_handle* handle = nullptr;
    ok(heif_context_encode_image(context, image, encoder, options, &handle));
    constexpr std::uint8_t exif[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 18, 1, 3,
                                     0,   1,   0,  0, 0, 6, 0, 0, 0, 0, 0,  0, 0};
    if (how.exif) ok(heif_context_add_exif_metadata(context, handle, exif, sizeof exif));
    heif_writer writer{1, [](heif_context*, const void* data, std::size_t size, void* to) {
                         const auto* begin = static_cast<const std::byte*>(data);
                         static_cast<FileBytes*>(to)->assign(begin, begin + size);
                         return heif_error{heif_error_Ok, heif_suberror_Unspecified, ""};
                       }};
    ok(heif_context_write(context, &writer, &file));
    heif_image_handle_release(handle);
    heif_encoding_options_free(options);
    heif_nclx_color_profile_free(nclx);
    heif_image_release(image);
    heif_encoder_release(encoder);
  }
  heif_context_free(context);
  if (file.empty()) MESSAGE("skipped: libheif has no encoder for format " << how.format);
  return file;
}

constexpr heif_compression_format both_formats[] = {heif_compression_HEVC, heif_compression_AV1};

/// The content of a file's first box of that name, wherever it is.
FileBytes content_of(const FileBytes& file, std::string_view name) {
  const FileBytes wanted = text(name);
  const auto found = std::search(file.begin(), file.end(), wanted.begin(), wanted.end());
  REQUIRE(found != file.end());
  std::size_t size = 0;
  for (auto at = found - 4; at != found; ++at) size = size << 8 | std::to_integer<std::size_t>(*at);
  return {found + 4, found - 4 + long(size)};
}

struct Item {
  std::string type;
  FileBytes data;
  std::vector<FileBytes> properties;
  std::size_t extents = 1;  ///< each with all of the data
};
struct Reference {
  std::string type;
  std::size_t from;
  std::vector<std::size_t> to;
};

/// Items 1, 2 ...; the first is the primary one.
FileBytes container(const std::vector<Item>& items, const std::vector<Reference>& references = {}) {
  FileBytes data, locations, infos, properties, associations, links;
  const FileBytes head = ftyp("heic");
  std::size_t id = 0, property = 0;
  for (const Item& item : items) {
    ++id;
    locations = joined({locations, u16(id), u16(0), u16(item.extents)});
    for (std::size_t i = 0; i < item.extents; ++i)
      locations = joined({locations, u32(head.size() + 8 + data.size()), u32(item.data.size())});
    infos = joined({infos, box("infe", joined({u32(2 << 24), u16(id), u16(0), text(item.type), u16(0)}))});
    associations = joined({associations, u16(id)});
    append(associations, {static_cast<int>(item.properties.size())});
    for (const FileBytes& each : item.properties) {
      properties = joined({properties, each});
      append(associations, {static_cast<int>(++property)});
    }
    data = joined({data, item.data});
  }
  for (const Reference& reference : references) {
    FileBytes to = joined({u16(reference.from), u16(reference.to.size())});
    for (const std::size_t each : reference.to) to = joined({to, u16(each)});
    links = joined({links, box(reference.type, to)});
  }
  const FileBytes picture_handler = joined({u32(0), u32(0), text("pict"), FileBytes(13)});
  const FileBytes meta = joined(
      {u32(0), box("hdlr", picture_handler), box("pitm", joined({u32(0), u16(1)})),
       box("iloc", joined({u32(0), u16(0x4400), u16(items.size()), locations})),
       box("iinf", joined({u32(0), u16(items.size()), infos})), box("iref", joined({u32(0), links})),
       box("iprp", joined({box("ipco", properties), box("ipma", joined({u32(0), u32(items.size()), associations}))}))});
  return joined({head, box("mdat", data), box("meta", meta)});
}

FileBytes ispe(std::size_t width, std::size_t height) { return box("ispe", joined({u32(0), u32(width), u32(height)})); }
FileBytes grid_of(int rows, int columns, std::size_t width, std::size_t height) {
  FileBytes bytes;
  append(bytes, {0, 0, rows - 1, columns - 1});
  return joined({bytes, u16(width), u16(height)});
}

/// A coded picture of 64 x 64 pixels, as it is in an encoder's file.
Item tile(const Pixels& pixels) {
  const FileBytes file = encoded(pixels, 64, 64, {.exif = false});
  if (file.empty()) return {};
  return {"hvc1", content_of(file, "mdat"), {ispe(64, 64), box("hvcC", content_of(file, "hvcC"))}};
}

/// The mean difference of two pictures' samples; of lossless ones none differs by more than 1, libheif's rounding.
double difference(const Pixels& a, const Pixels& b, bool lossless) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  int most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const int here = std::abs(int{a[i]} - int{b[i]});
    most = std::max(most, here);
    sum += here;
  }
  if (lossless) CHECK(most <= 1);
  return sum / static_cast<double>(a.size());
}

TEST_CASE("heif/pixels: of 8 and 10 bits, alpha dropped") {
  const Pixels pixels = some_pixels(70, 66, 3);
  Pixels with_alpha;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    with_alpha.push_back(pixels[i]);
    if (i % 3 == 2) with_alpha.push_back(static_cast<std::uint8_t>(i));
  }
  std::vector<Encoding> encodings;  // none of AV1 with 10 bits: Debian's encoder aborts
  for (const bool lossless : {true, false}) {
    encodings.push_back({.lossless = lossless});
    encodings.push_back({.bits = 10, .lossless = lossless});
    encodings.push_back({.channels = 4, .lossless = lossless});
  }
  encodings.push_back({.format = heif_compression_AV1, .lossless = false});
  encodings.push_back({.format = heif_compression_AV1, .channels = 4, .lossless = false});
  for (const Encoding& how : encodings) {
    CAPTURE(how.format);
    CAPTURE(how.channels);
    CAPTURE(how.bits);
    const FileBytes file = encoded(how.channels == 4 ? with_alpha : pixels, 70, 66, how);
    if (file.empty()) continue;
    CHECK(begins_as_picture(std::span(file).first(12)));
    const Picture picture = decode_image(file, "p");
    CHECK(picture.width == 70);
    CHECK(picture.height == 66);
    CHECK(picture.channels == 3);
    CHECK(difference(picture.pixels, pixels, how.lossless) < 12);  // lossy where a channel wraps from 255 to 0
  }
}

TEST_CASE("heif/turned as the container says, not once more as EXIF says") {
  const Pixels pixels = some_pixels(70, 66, 3);
  const FileBytes file = encoded(pixels, 70, 66, {.orientation = heif_orientation_rotate_90_cw});
  if (file.empty()) return;
  const Picture turned = decode_image(file, "p");
  CHECK(turned.width == 66);
  REQUIRE(turned.height == 70);
  Pixels expected;
  for (int y = 0; y < 70; ++y)
    for (int x = 0; x < 66; ++x)
      for (int c = 0; c < 3; ++c) expected.push_back(pixels[static_cast<std::size_t>(((65 - x) * 70 + y) * 3 + c)]);
  (void)difference(turned.pixels, expected, true);
}

TEST_CASE("heif/a grid of tiles") {
  const Pixels pixels = some_pixels(64, 64, 3);
  const Item one = tile(pixels);
  if (one.data.empty()) return;
  const std::vector<Item> items{{"grid", grid_of(2, 2, 100, 90), {ispe(100, 90)}}, one};
  const Picture picture = decode_image(container(items, {{"dimg", 1, {2, 2, 2, 2}}}), "p");
  CHECK(picture.width == 100);
  REQUIRE(picture.height == 90);
  Pixels expected;
  for (int y = 0; y < 90; ++y)
    for (int x = 0; x < 100; ++x)
      for (int c = 0; c < 3; ++c) expected.push_back(pixels[static_cast<std::size_t>((y % 64 * 64 + x % 64) * 3 + c)]);
  (void)difference(picture.pixels, expected, true);
}

/// The sizes that are checked before decoding, the last of which is refused.
std::string sizes_of(const FileBytes& file, int most = 100) {
  std::string sizes;
  const auto check_size = [&](std::int64_t width, std::int64_t height) {
    sizes += std::to_string(width) + "x" + std::to_string(height) + " ";
    if (width > most || height > most) throw Error(ErrorKind::limit, "large");
  };
  try {
    (void)decode_image(file, "p", {.check_size = check_size, .reserve = [](std::int64_t) { FAIL("reserved"); }});
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::limit);
  }
  return sizes;
}

TEST_CASE("heif/sizes are checked before decoding: the container's, the grid's and the coded picture's") {
  const Pixels pixels = some_pixels(64, 64, 3);
  Item one = tile(pixels);
  if (one.data.empty()) return;
  CHECK(sizes_of(container({one}), 63) == "64x64 ");
  one.properties[0] = ispe(20000, 20000);  // more than is coded
  CHECK(sizes_of(container({one})) == "64x64 20000x20000 ");
  const auto error = refusal(container({one}));
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::limit);
  one.properties[0] = ispe(8, 8);  // less
  CHECK(refusal(container({one})));
  const Item large_grid{"grid", grid_of(1, 1, 30000, 30000), {ispe(8, 8)}};
  CHECK(sizes_of(container({large_grid, one}, {{"dimg", 1, {2}}})).ends_with("30000x30000 "));

  // A sequence header of AV1 alone: 2^16 x 2^16 pixels, in 9 bytes.
  FileBytes header;
  append(header, {0x0A, 7, 0x18, 0x3F, 0xFF, 0xFF, 0xFF, 0xFF, 0xC0});
  FileBytes config;
  append(config, {0x81, 0, 0x0C, 0});
  const Item bomb{"av01", header, {ispe(8, 8), box("av1C", config)}};
  CHECK(sizes_of(container({bomb})) == "65536x65536 ");
  const Item hidden{"av01", {}, {ispe(8, 8), box("av1C", joined({config, header}))}};
  CHECK(sizes_of(container({hidden})) == "65536x65536 ");
}

/// A unit of AV1's bitstream of these bits; spaces are for the reader.
FileBytes unit(int type, std::string bits) {
  std::erase(bits, ' ');
  bits.resize((bits.size() + 7) / 8 * 8, '0');
  FileBytes bytes;
  append(bytes, {type << 3 | 2, static_cast<int>(bits.size() / 8)});
  for (std::size_t i = 0; i < bits.size(); i += 8)
    bytes.push_back(static_cast<std::byte>(std::stoi(bits.substr(i, 8), nullptr, 2)));
  return bytes;
}

TEST_CASE("heif/a frame of AV1 is as large as its sequence") {
  FileBytes config;
  append(config, {0x81, 0, 0x0C, 0});
  const auto reason = [&](const std::string& timing, const std::string& ids, const std::string& frame) {
    // Not of a still picture; one operating point of level 0; sizes of 16 bits: 8 x 8; no order hints.
    const std::string sequence = "00000" + timing + "0" + "00000" + std::string(12 + 5, '0') +
                                 (timing.size() > 1 ? "0" : "") + "11111111" + "0000000000000111" + "0000000000000111" +
                                 ids + "0000000" + "0" + "11" + std::string(16, '0');
    const Item one{"av01", joined({unit(1, sequence), unit(6, frame)}), {ispe(8, 8), box("av1C", config)}};
    const auto error = refusal(container({one}));
    return error ? error->message() : std::string();
  };
  const std::string refused = "AVIF of frames with sizes of their own is not read";
  // Not an earlier frame; a key frame; shown; adapts; no tools for screen content; of another size.
  CHECK(reason("0", "0", "0001 0 0 1 11111111") == refused);
  CHECK(reason("0", "0", "0001 0 0 0 11111111") != refused);
  CHECK(reason("0", "0", "0001 0 10 1 11111111") == refused);
  CHECK(reason("0", "0", "0000 1 0 0 0 1 11111111") == refused);       // not shown
  CHECK(reason("0", "0", "0111 0 0 11111111") == refused);             // a switch frame
  CHECK(reason("0", "1 0000 000", "0001 0 0 111 0 1111") != refused);  // its id, then the size
  CHECK(reason("0", "1 0000 000", "0001 0 0 000 1 1111") == refused);
  // Timing, unequal intervals, a decoder model with times of 3 bits.
  const std::string timing = "1" + std::string(64, '0') + "0" + "1" + "00000" + std::string(37, '0') + "00010";
  CHECK(reason(timing, "0", "0001 111 0 0 0 1111") != refused);
  CHECK(reason(timing, "0", "0001 000 0 0 1 1111") == refused);
}

TEST_CASE("heif/what libheif would decode without bounds is refused") {
  const Item one = tile(some_pixels(64, 64, 3));
  if (one.data.empty()) return;
  const auto reason = [](const FileBytes& file) {
    const auto error = refusal(file);
    return error ? error->message() : std::string();
  };
  const std::string derived = "HEIF with derived pictures is not read";
  CHECK(reason(container({{"iden", {}, {ispe(64, 64)}}, one}, {{"dimg", 1, {1}}})) == derived);
  const Item grid{"grid", grid_of(1, 1, 64, 64), {ispe(64, 64)}};
  CHECK(reason(container({grid, one}, {{"dimg", 1, {1}}})) == derived);
  CHECK(reason(container({grid, grid, one}, {{"dimg", 1, {2}}, {"dimg", 2, {1}}})) == derived);

  Item alpha = one;
  alpha.properties.push_back(
      box("auxC", joined({u32(0), text("urn:mpeg:mpegB:cicp:systems:auxiliary:alpha"), FileBytes(1)})));
  CHECK(reason(container({one, alpha}, {{"auxl", 2, {1}}})).empty());
  CHECK(reason(container({one, alpha, alpha}, {{"auxl", 2, {3}}, {"auxl", 3, {2}}})) ==
        "HEIF with auxiliary pictures of auxiliary pictures is not read");

  Item mime{"mime", text("x"), {}};
  CHECK(reason(container({one, mime}, {{"cdsc", 2, {1}}})).empty());
  mime.type += std::string("n\0text/xml\0deflate\0", 19);
  CHECK(reason(container({one, mime}, {{"cdsc", 2, {1}}})) == "HEIF with compressed metadata is not read");

  Item repeated = mime;
  repeated.type = "Exif";
  repeated.data = FileBytes(10000);
  repeated.extents = 32;
  CHECK(reason(container({one, repeated}, {{"cdsc", 2, {1}}})) == "items of the HEIF file overlap");
  CHECK(reason(ftyp("avis")) == "HEIF without a still picture is not read");
}

TEST_CASE("heif/each truncation is refused, damage never crashes") {
  for (const heif_compression_format format : both_formats) {
    const FileBytes whole = encoded(some_pixels(40, 30, 3), 40, 30, {.format = format, .lossless = false});
    if (whole.empty()) continue;
    CHECK(!refusal(whole));
    for (std::size_t size = 0; size < whole.size(); ++size) CHECK(refusal({whole.begin(), whole.begin() + long(size)}));
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (const int flip : {0x01, 0xFF}) {
        FileBytes damaged = whole;
        damaged[i] ^= static_cast<std::byte>(flip);
        (void)refusal(damaged);
      }
  }
}

#else

TEST_CASE("heif/a build without libheif says so") {
  const auto error = refusal(ftyp("heic"));
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::invalid_image);
  CHECK(error->message().find("HEIF or AVIF is not read") != std::string::npos);
}

#endif

}  // namespace
}  // namespace lenslet
