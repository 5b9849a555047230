// PNG by libpng.
#include <png.h>

#include <cstring>
#include <string_view>

#include "photos/pictures/library_calls.h"

namespace lenslet::photos {

namespace {

// Data after the last pixel is decompressed, too: of a file of the largest size, half a terabyte.
constexpr std::size_t most_extra_bytes = std::size_t{1} << 16;

struct Reader {
  std::span<const std::byte> rest;  ///< of the file
  int orientation = 1;
  std::size_t extra_bytes = 0;  ///< of IDAT chunks, after the last pixel
  LibraryCalls calls{"PNG"};
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit Reader(std::span<const std::byte> file) : rest(file) {}
  Reader(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void on_error(png_structp png, png_const_charp reason) {
  static_cast<Reader*>(png_get_error_ptr(png))->calls.fail(reason);
}

/// Warnings about pixel data are errors, except about bytes after the last pixel.
void on_warning(png_structp png, png_const_charp reason) {
  const std::string_view text(reason);
  if (text.starts_with("IDAT") && text.find("Extra") == text.npos && text.find("Too m") == text.npos)
    on_error(png, reason);
}

void read_bytes(png_structp png, png_bytep to, std::size_t bytes) {
  auto& reader = *static_cast<Reader*>(png_get_io_ptr(png));
  if (reader.rest.size() < bytes) png_error(png, "it ends early");
  constexpr png_uint_32 idat = 0x49444154;
  const bool is_done = png_get_current_row_number(png) >= png_get_image_height(png, reader.info) ||
                       png_get_current_pass_number(png) >= PNG_INTERLACE_ADAM7_PASSES;
  if (is_done && png_get_io_chunk_type(png) == idat && (reader.extra_bytes += bytes) > most_extra_bytes)
    png_error(png, "more data than pixels");
  std::memcpy(to, reader.rest.data(), bytes);
  reader.rest = reader.rest.subspan(bytes);
}

int on_chunk(png_structp png, png_unknown_chunkp chunk) {
  if (std::memcmp(chunk->name, "eXIf", 4) != 0) return 0;  // ignored, or an error if it is critical
  const std::span<const png_byte> body(chunk->data, chunk->size);
  static_cast<Reader*>(png_get_user_chunk_ptr(png))->orientation = exif_orientation(std::as_bytes(body));
  return 1;
}

}  // namespace

Decoded decode_png(std::span<const std::byte> file, const CheckSize& check_size) {
  Reader reader(file);
  png_structp& png = reader.png;
  png_infop& info = reader.info;
  reader.calls.run([&] {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, on_error, on_warning);
    if (png == nullptr || (info = png_create_info_struct(png)) == nullptr) reader.calls.fail("libpng does not start");
    png_set_read_fn(png, &reader, read_bytes);
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size does it
    png_set_chunk_malloc_max(png, file.size() + 1);
    // Only header, palette and pixels are read, and eXIf by on_chunk.
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, reinterpret_cast<png_const_bytep>("tRNS"), 1);
    png_set_read_user_chunk_fn(png, &reader, on_chunk);
    png_set_check_for_invalid_index(png, 0);  // an index beyond the palette is black
    png_read_info(png, info);
  });
  const png_uint_32 width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  check_size(width, height);

  Decoded decoded;
  Picture& picture = decoded.picture;
  picture.height = height;
  picture.width = width;
  picture.channels = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
  const std::size_t row_bytes = static_cast<std::size_t>(width) * static_cast<std::size_t>(picture.channels);
  picture.pixels.resize(height * row_bytes);
  std::vector<png_bytep> rows;
  for (png_uint_32 y = 0; y < height; ++y) rows.push_back(picture.pixels.data() + y * row_bytes);
  reader.calls.run([&] {
    png_set_expand(png);    // palettes and fewer than 8 bits
    png_set_strip_16(png);  // to the upper 8 bits
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "its rows are not as its header says");
    png_read_image(png, rows.data());
    png_read_end(png, nullptr);
  });
  decoded.orientation = reader.orientation;
  return decoded;
}

}  // namespace lenslet::photos
