#include "tools/pictures/read_image.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "lenslet/error.h"
#include "tools/pictures/bmp.h"
#include "tools/pictures/image_header.h"
#include "tools/pictures/pnm.h"
#include "tools/pictures/read_file.h"
#include "tools/pictures/stb_decode.h"
#include "tools/pictures/webp_decode.h"

namespace lenslet::tool {

namespace {

void check_size(std::int64_t width, std::int64_t height) {
  if (width < 1 || height < 1) throw BadImage(fmt::format("the picture is {} x {} pixels", width, height));
  check_image_size(width, height);
}

/// Turns stored pixels upright. EXIF's value gives the sides of row 0 and column 0 in the stored picture.
Picture turn_upright(Picture stored, int orientation) {
  if (orientation == 1) return stored;
  const bool transposed = orientation >= 5;
  const bool mirror_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool mirror_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Picture upright;
  upright.height = transposed ? stored.width : stored.height;
  upright.width = transposed ? stored.height : stored.width;
  upright.channels = stored.channels;
  upright.pixels.resize(stored.pixels.size());
  std::uint8_t* target = upright.pixels.data();
  for (std::int64_t y = 0; y < upright.height; ++y)
    for (std::int64_t x = 0; x < upright.width; ++x) {
      const std::int64_t from_y = mirror_y ? upright.height - 1 - y : y;
      const std::int64_t from_x = mirror_x ? upright.width - 1 - x : x;
      const std::int64_t pixel = transposed ? from_x * stored.width + from_y : from_y * stored.width + from_x;
      for (std::int64_t c = 0; c < stored.channels; ++c)
        *target++ = stored.pixels[static_cast<std::size_t>(pixel * stored.channels + c)];
    }
  return upright;
}

Picture decode(std::span<const std::byte> file, const ImageHeader& header) {
  check_size(header.width, header.height);
  Picture picture;
  picture.channels = header.gray ? 1 : 3;
  // 8 bytes a pixel for four channels of 16 bits, as the decoder's buffers double; interlaced rows have one more byte.
  const auto max_bytes = static_cast<std::size_t>(header.width * header.height) * 8 * 4 + (std::size_t{1} << 20);
  const DecodedPixels decoded = stb_decode(header.decoded_as.empty() ? file : std::span(header.decoded_as),
                                           static_cast<int>(picture.channels), max_bytes);
  if (decoded.pixels == nullptr)
    throw BadImage(fmt::format("the picture cannot be decoded ({})", decoded.error ? decoded.error : "no reason"));
  picture.height = decoded.height;
  picture.width = decoded.width;
  if (picture.height != header.height || picture.width != header.width)
    throw BadImage("the file contradicts itself about the size of the picture");
  const auto elems = static_cast<std::size_t>(picture.height * picture.width * picture.channels);
  picture.pixels.assign(decoded.pixels.get(), decoded.pixels.get() + elems);
  return turn_upright(std::move(picture), header.orientation);
}

Picture decode_webp(std::span<const std::byte> file) {
  const ImageHeader header = read_webp_header(file);
  check_size(header.width, header.height);
  Picture picture{webp_decode(file, header.height, header.width), header.height, header.width};
  return turn_upright(std::move(picture), header.orientation);
}

bool has(std::span<const std::byte> file, std::size_t at, std::string_view text) {
  return file.size() >= at + text.size() && std::memcmp(file.data() + at, text.data(), text.size()) == 0;
}

enum class Kind { jpeg, png, bmp, webp, pnm, other };

Kind kind_of(std::span<const std::byte> file) {
  if (has(file, 0, "\xFF\xD8\xFF")) return Kind::jpeg;
  if (has(file, 0, "\x89PNG\r\n\x1A\n")) return Kind::png;
  if (has(file, 0, "BM")) return Kind::bmp;
  if (has(file, 0, "RIFF") && has(file, 8, "WEBP")) return Kind::webp;
  const bool pnm = file.size() > 2 && has(file, 0, "P") && file[1] >= std::byte{'1'} && file[1] <= std::byte{'7'};
  return pnm ? Kind::pnm : Kind::other;
}

/// Common formats that are refused by name.
const char* known_but_not_read(std::span<const std::byte> file) {
  if (has(file, 0, "GIF8")) return "GIF";
  if (has(file, 0, "II*") || has(file, 0, "MM")) return "TIFF";
  if (has(file, 4, "ftyp")) return "HEIF or AVIF";
  if (has(file, 0, "8BPS")) return "PSD";
  return nullptr;
}

Picture decode_any(std::span<const std::byte> file) {
  if (file.empty()) throw BadImage("the file is empty");
  switch (kind_of(file)) {
    case Kind::jpeg:
      return decode(file, read_jpeg_header(file));
    case Kind::png:
      return decode(file, read_png_header(file));
    case Kind::bmp:
      return decode_bmp(file, check_size);
    case Kind::webp:
      return decode_webp(file);
    case Kind::pnm:
      return decode_pnm(file, check_size);
    case Kind::other:
      break;
  }
  if (const char* name = known_but_not_read(file))
    throw BadImage(fmt::format("{} is not read; JPEG, PNG, BMP, PNM and WebP are", name));
  throw BadImage("this is no JPEG, PNG, BMP, PNM or WebP file");
}

}  // namespace

void check_image_size(std::int64_t width, std::int64_t height) {
  if (width > max_image_side || height > max_image_side || width * height > max_image_pixels)
    throw Error(ErrorKind::limit, fmt::format("the picture is {} x {} pixels; at most {} a side and {} in all are read",
                                              width, height, max_image_side, max_image_pixels));
}

bool begins_as_picture(std::span<const std::byte> head) {
  return kind_of(head) != Kind::other || known_but_not_read(head) != nullptr;
}

Picture decode_image(std::span<const std::byte> bytes, std::string_view name) {
  try {
    if (bytes.size() > max_image_file_bytes)
      throw Error(ErrorKind::limit, fmt::format("the file is larger than {} MiB", max_image_file_bytes >> 20));
    return decode_any(bytes);
  } catch (const BadImage& error) {
    throw Error(ErrorKind::invalid_image, error.what(), std::string(name));
  } catch (const Error& error) {
    throw error.within(name);
  }
}

Picture read_image(const std::filesystem::path& path) {
  const std::string bytes = path == "-" ? read_stdin(max_image_file_bytes) : read_file(path, max_image_file_bytes);
  return decode_image(std::as_bytes(std::span(bytes)), path.string());
}

}  // namespace lenslet::tool
