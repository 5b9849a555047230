#include "lenslet/picture.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "lenslet/error.h"
#include "photos/pictures/decoders.h"
#include "photos/pictures/read_file.h"

namespace lenslet {

using namespace photos;

namespace {

/// Turns stored pixels upright. EXIF's value gives the sides of row 0 and column 0 in the stored picture.
Picture turn_upright(Decoded decoded) {
  const int orientation = decoded.orientation;
  Picture& stored = decoded.picture;
  if (orientation == 1) return std::move(stored);
  const bool transposed = orientation >= 5;
  const bool mirror_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool mirror_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Picture upright;
  upright.height = transposed ? stored.width : stored.height;
  upright.width = transposed ? stored.height : stored.width;
  upright.channels = stored.channels;
  upright.reduction = stored.reduction;
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

bool has(std::span<const std::byte> file, std::size_t at, std::string_view text) {
  return file.size() >= at + text.size() && std::memcmp(file.data() + at, text.data(), text.size()) == 0;
}

enum class Kind { jpeg, png, bmp, webp, heif, pnm, other };

/// "ftyp" and one of these as the main brand, or as one of the first that the file is compatible with.
bool is_heif(std::span<const std::byte> file) {
  if (!has(file, 4, "ftyp")) return false;
  for (const std::size_t at : {8U, 16U, 20U, 24U, 28U})
    for (const char* brand : {"heic", "heix", "heim", "heis", "hevc", "hevx", "mif1", "msf1", "avif", "avis"})
      if (has(file, at, brand)) return true;
  return false;
}

Kind kind_of(std::span<const std::byte> file) {
  if (has(file, 0, "\xFF\xD8\xFF")) return Kind::jpeg;
  if (has(file, 0, "\x89PNG\r\n\x1A\n")) return Kind::png;
  if (has(file, 0, "BM")) return Kind::bmp;
  if (has(file, 0, "RIFF") && has(file, 8, "WEBP")) return Kind::webp;
  if (is_heif(file)) return Kind::heif;
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

Decoded decode_any(std::span<const std::byte> file, const DecodeOptions& options) {
  if (file.empty()) throw BadImage("the file is empty");
  const CheckSize check_size = check_whole(options);
  switch (kind_of(file)) {
    case Kind::jpeg:
      return decode_jpeg(file, options);
    case Kind::png:
      return decode_png(file, check_size);
    case Kind::bmp:
      return decode_bmp(file, check_size);
    case Kind::webp:
      return decode_webp(file, options);
    case Kind::heif:
      return decode_heif(file, options);
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
  if (width < 1 || height < 1)
    throw Error(ErrorKind::invalid_image, fmt::format("the picture is {} x {} pixels", width, height));
  if (width > max_image_side || height > max_image_side || width * height > max_image_pixels)
    throw Error(ErrorKind::limit, fmt::format("the picture is {} x {} pixels; at most {} a side and {} in all are read",
                                              width, height, max_image_side, max_image_pixels));
}

std::string_view picture_decoders() { return LENSLET_DECODERS; }

bool begins_as_picture(std::span<const std::byte> head) {
  return kind_of(head) != Kind::other || known_but_not_read(head) != nullptr;
}

Picture decode_image(std::span<const std::byte> bytes, std::string_view name, const DecodeOptions& options) {
  try {
    if (bytes.size() > max_image_file_bytes)
      throw Error(ErrorKind::limit, fmt::format("the file is larger than {} MiB", max_image_file_bytes >> 20));
    return turn_upright(decode_any(bytes, options));
  } catch (const BadImage& error) {
    throw Error(ErrorKind::invalid_image, error.what(), std::string(name));
  } catch (const Error& error) {
    throw error.within(name);
  }
}

Picture read_image(const std::filesystem::path& path, const DecodeOptions& options) {
  const std::string bytes = read_photo(path);
  return decode_image(std::as_bytes(std::span(bytes)), path.string(), options);
}

}  // namespace lenslet
