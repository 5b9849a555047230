#include "tools/pictures/webp_decode.h"

#include <new>

#include "tools/pictures/image_header.h"

#if LENSLET_HAVE_WEBP
#include <webp/decode.h>
#endif

namespace lenslet::tool {

#if LENSLET_HAVE_WEBP

std::vector<std::uint8_t> webp_decode(std::span<const std::byte> file, std::int64_t height, std::int64_t width) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data());
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0 || WebPGetFeatures(bytes, file.size(), &config.input) != VP8_STATUS_OK)
    throw BadImage("the picture cannot be decoded (its header)");
  if (config.input.width != width || config.input.height != height)
    throw BadImage("the file contradicts itself about the size of the picture");
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height * width * 3));
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {pixels.data(), static_cast<int>(width * 3), pixels.size()};
  const VP8StatusCode status = WebPDecode(bytes, file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  if (status == VP8_STATUS_NOT_ENOUGH_DATA || status == VP8_STATUS_SUSPENDED)
    throw BadImage("the WebP file is cut short");
  if (status != VP8_STATUS_OK) throw BadImage("the picture cannot be decoded (damaged)");
  return pixels;
}

#else

std::vector<std::uint8_t> webp_decode(std::span<const std::byte>, std::int64_t, std::int64_t) {
  throw BadImage("this build of lenslet reads no WebP (libwebp was not there)");
}

#endif

}  // namespace lenslet::tool
