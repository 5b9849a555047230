// JPEG and PNG with -DLENSLET_PICTURES=stb.
#include "photos/pictures/decoders.h"

#include <fmt/format.h>

#include "photos/pictures/stb/image_header.h"
#include "photos/pictures/stb/stb_decode.h"

namespace lenslet::photos {

namespace {

Decoded decode(std::span<const std::byte> file, const ImageHeader& header, const CheckSize& check_size) {
  check_size(header.width, header.height);
  Decoded result;
  result.orientation = header.orientation;
  Picture& picture = result.picture;
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
  return result;
}

}  // namespace

std::optional<PictureSize> jpeg_for_gpu(std::span<const std::byte>) { return std::nullopt; }

Decoded decode_jpeg(std::span<const std::byte> file, const DecodeOptions& options) {
  return decode(file, read_jpeg_header(file), check_whole(options));
}
Decoded decode_png(std::span<const std::byte> file, const CheckSize& check_size) {
  return decode(file, read_png_header(file), check_size);
}

}  // namespace lenslet::photos
