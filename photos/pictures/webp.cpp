// WebP by libwebp: the container by WebPDemux, the pixels by WebPDecode.
#include "photos/pictures/decoders.h"

#if LENSLET_HAVE_WEBP

#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <new>

namespace lenslet::photos {

Decoded decode_webp(std::span<const std::byte> file, const DecodeOptions& options) {
  const WebPData data{reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> container(WebPDemux(&data), WebPDemuxDelete);
  if (container == nullptr) throw BadImage("the WebP file is damaged or cut short");
  if ((WebPDemuxGetI(container.get(), WEBP_FF_FORMAT_FLAGS) & ANIMATION_FLAG) != 0)
    throw BadImage("animated WebP is not read");
  Decoded decoded;
  Picture& picture = decoded.picture;
  picture.width = WebPDemuxGetI(container.get(), WEBP_FF_CANVAS_WIDTH);
  picture.height = WebPDemuxGetI(container.get(), WEBP_FF_CANVAS_HEIGHT);
  options.check_size(picture.width, picture.height);
  if (WebPChunkIterator exif; WebPDemuxGetChunk(container.get(), "EXIF", 1, &exif) != 0) {
    decoded.orientation = exif_orientation(std::as_bytes(std::span(exif.chunk.bytes, exif.chunk.size)));
    WebPDemuxReleaseChunkIterator(&exif);
  }
  WebPBitstreamFeatures features;
  const bool lossy = WebPGetFeatures(data.bytes, data.size, &features) == VP8_STATUS_OK && features.format == 1;
  // libwebp holds the ARGB of lossless ones; turning copies pixels.
  options.reserve(picture.width * picture.height * (!lossy ? 3 + 4 : decoded.orientation == 1 ? 3 : 3 + 3));
  picture.pixels.resize(static_cast<std::size_t>(picture.height * picture.width * 3));
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) throw BadImage("this libwebp is another than the one of the build");
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {picture.pixels.data(), static_cast<int>(picture.width * 3), picture.pixels.size()};
  const VP8StatusCode status = WebPDecode(data.bytes, data.size, &config);
  WebPFreeDecBuffer(&config.output);
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  if (status != VP8_STATUS_OK) throw BadImage("the WebP file is damaged or cut short");
  return decoded;
}

}  // namespace lenslet::photos

#else

lenslet::photos::Decoded lenslet::photos::decode_webp(std::span<const std::byte>, const DecodeOptions&) {
  throw BadImage("this build of lenslet reads no WebP (libwebp was not there)");
}

#endif
