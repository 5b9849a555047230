// HEIC and AVIF by libheif: the primary picture, upright. libheif turns it as the file's irot and imir say; the EXIF
// orientation says the same and is not applied again.
#include "photos/pictures/decoders.h"

#if LENSLET_HAVE_HEIF

#include <fmt/format.h>
#include <libheif/heif.h>

#include <algorithm>
#include <memory>
#include <new>

#include "photos/pictures/heif_boxes.h"

namespace lenslet::photos {

namespace {

void check(const heif_error& error) {
  if (error.code == heif_error_Ok) return;
  if (error.code == heif_error_Memory_allocation_error && error.subcode != heif_suberror_Security_limit_exceeded)
    throw std::bad_alloc();
  throw BadImage(fmt::format("the HEIF or AVIF file is damaged, cut short or of a kind that is not read ({})",
                             error.message == nullptr ? "no reason" : error.message));
}

template <typename T, auto release>
struct Release {
  void operator()(T* object) const { release(object); }
};
using Context = std::unique_ptr<heif_context, Release<heif_context, heif_context_free>>;
using Handle = std::unique_ptr<heif_image_handle, Release<heif_image_handle, heif_image_handle_release>>;
using Image = std::unique_ptr<heif_image, Release<heif_image, heif_image_release>>;
using Options = std::unique_ptr<heif_decoding_options, Release<heif_decoding_options, heif_decoding_options_free>>;

template <typename T>
T made(T object) {
  if (object == nullptr) throw std::bad_alloc();
  return object;
}

}  // namespace

Decoded decode_heif(std::span<const std::byte> file, const DecodeOptions& options) {
  const std::int64_t coded_pixels = check_heif(file, options.check_size);
  const Context context = made(Context(heif_context_alloc()));
  heif_context_set_max_decoding_threads(context.get(), 0);                                        // this one
#if LIBHEIF_NUMERIC_VERSION >= 0x01130000                                                         // 1.19
  heif_context_get_security_limits(context.get())->max_image_size_pixels = 2 * max_image_pixels;  // with padding
#endif
  check(heif_context_read_from_memory_without_copy(context.get(), file.data(), file.size(), nullptr));
  heif_image_handle* primary = nullptr;
  check(heif_context_get_primary_image_handle(context.get(), &primary));
  const Handle handle(primary);
  const std::int64_t width = heif_image_handle_get_width(primary), height = heif_image_handle_get_height(primary);
  options.check_size(width, height);
  // libheif's planes and copies take 3 to 5 bytes a pixel of 8 bits beside ours (of 4:4:4 10).
  const bool deep = heif_image_handle_get_luma_bits_per_pixel(primary) > 8;
  options.reserve(std::max(coded_pixels, width * height) * (deep ? 16 : 8));

  const Options decoding = made(Options(heif_decoding_options_alloc()));
  decoding->strict_decoding = 0;  // libheif 1.15 leaks the frame that it refuses; its warnings are errors below
  decoding->convert_hdr_to_8bit = 1;
  heif_image* rgb = nullptr;
  check(heif_decode_image(primary, &rgb, heif_colorspace_RGB, heif_chroma_interleaved_RGB, decoding.get()));
  const Image image(rgb);
  if (heif_error warning; heif_image_get_decoding_warnings(rgb, 0, &warning, 1) > 0)  // its message is not alive
    throw BadImage("the HEIF or AVIF file is damaged (a warning of libheif)");
  int stride = 0;
  const std::uint8_t* pixels = heif_image_get_plane_readonly(rgb, heif_channel_interleaved, &stride);
  if (pixels == nullptr || heif_image_get_width(rgb, heif_channel_interleaved) != width ||
      heif_image_get_height(rgb, heif_channel_interleaved) != height)
    throw BadImage("the HEIF or AVIF file contradicts itself about the size of the picture");
  Decoded decoded;
  decoded.picture.width = width;
  decoded.picture.height = height;
  decoded.picture.pixels.resize(static_cast<std::size_t>(3 * width * height));
  for (std::int64_t y = 0; y < height; ++y)
    std::copy_n(pixels + y * stride, 3 * width, decoded.picture.pixels.data() + 3 * width * y);
  return decoded;
}

}  // namespace lenslet::photos

#else

lenslet::photos::Decoded lenslet::photos::decode_heif(std::span<const std::byte>, const DecodeOptions&) {
  throw BadImage("HEIF or AVIF is not read; JPEG, PNG, BMP, PNM and WebP are");
}

#endif
