// JPEG by libjpeg-turbo with its defaults, which are Pillow's: the same bits.
#include <cstdio>  // jpeglib.h wants FILE

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "photos/pictures/library_calls.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "this libjpeg is not libjpeg-turbo, whose pixels differ"
#endif

namespace lenslet::photos {

namespace {

// Progressive files usually have ten scans; a hundred are an attack on the decoder's time.
constexpr int max_scans = 100;
constexpr int exif_marker = JPEG_APP0 + 1;

[[noreturn]] void fail(j_common_ptr info, const char* reason) {
  static_cast<LibraryCalls*>(info->client_data)->fail(reason);
}

[[noreturn]] void on_error(j_common_ptr info) {
  char text[JMSG_LENGTH_MAX];
  info->err->format_message(info, text);
  fail(info, text);
}

/// Warnings are errors, except those that lose no pixel.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;  // a trace message
  const int code = info->err->msg_code, marker = info->err->msg_parm.i[1];
  if (code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR || code == JWRN_NOT_SEQUENTIAL) return;
  // Extra bytes are skipped, except before a restart marker, where they mean a damaged scan.
  if (code == JWRN_EXTRANEOUS_DATA && (marker < JPEG_RST0 || marker > JPEG_RST0 + 7)) return;
  on_error(info);
}

void count_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > max_scans) fail(info, "more than 100 scans");
}

struct Reader {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  LibraryCalls calls{"JPEG"};

  Reader() {
    info.err = jpeg_std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    progress.progress_monitor = count_scans;
    info.client_data = &calls;
  }
  Reader(const Reader&) = delete;
  ~Reader() { jpeg_destroy_decompress(&info); }

  void read_header(std::span<const std::byte> file) {
    calls.run([&] {
      jpeg_create_decompress(&info);
      info.progress = &progress;
      jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
      jpeg_save_markers(&info, exif_marker, 0xFFFF);
      jpeg_read_header(&info, TRUE);
    });
  }
};

/// Joins the segments before the first scan, as Pillow does.
int orientation_of(const jpeg_decompress_struct& info) {
  constexpr char head[] = "Exif\0";
  std::vector<std::byte> exif;
  for (const jpeg_marker_struct* segment = info.marker_list; segment != nullptr; segment = segment->next) {
    const auto* bytes = reinterpret_cast<const std::byte*>(segment->data);
    if (segment->data_length >= sizeof head && std::memcmp(bytes, head, sizeof head) == 0)
      exif.insert(exif.end(), bytes + sizeof head, bytes + segment->data_length);
  }
  return exif_orientation(exif);
}

/// By what Pillow's draft() divides the sides, given the size that `spec` makes of the whole photo, upright.
unsigned reduction_for(const ImageSpec& spec, std::int64_t height, std::int64_t width) {
  if (spec.resize == ImageSpec::Resize::none) return 1;
  const auto input_height = static_cast<double>(spec.height), input_width = static_cast<double>(spec.width);
  const Box box = photo_box(spec, {0, 0, height, width}, {0, 0, input_width, input_height});
  const auto resized = [](std::int64_t side, double input, double part) {
    return std::llround(static_cast<double>(side) * input / part);
  };
  const std::int64_t most = std::min(height / resized(height, input_height, box.bottom - box.top),
                                     width / resized(width, input_width, box.right - box.left));
  return most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

/// Adobe's inks are inverted: 255 is no ink. Rounded as in Pillow.
void inks_to_rgb(const JSAMPLE* inks, std::size_t width, std::uint8_t* rgb) {
  for (std::size_t x = 0; x < width; ++x, inks += 4)
    for (int c = 0; c < 3; ++c) *rgb++ = static_cast<std::uint8_t>((inks[c] * inks[3] + 127) / 255);
}

}  // namespace

std::optional<PictureSize> jpeg_for_gpu(std::span<const std::byte> file) {
  constexpr char end[] = {'\xFF', '\xD9'};
  if (file.size() < 4 || std::memcmp(file.data(), "\xFF\xD8\xFF", 3) != 0 ||
      std::memcmp(file.data() + file.size() - 2, end, 2) != 0)
    return std::nullopt;
  Reader reader;
  jpeg_decompress_struct& info = reader.info;
  try {
    reader.read_header(file);
  } catch (const BadImage&) {
    return std::nullopt;
  }
  const bool of_one_scan = info.progressive_mode == FALSE && info.comps_in_scan == info.num_components;
  const bool is_known = info.jpeg_color_space == JCS_YCbCr || info.jpeg_color_space == JCS_GRAYSCALE;
  if (info.data_precision != 8 || info.arith_code != FALSE || !of_one_scan || !is_known || orientation_of(info) != 1)
    return std::nullopt;
  return PictureSize{info.image_height, info.image_width};
}

Decoded decode_jpeg(std::span<const std::byte> file, const DecodeOptions& options) {
  Reader reader;
  jpeg_decompress_struct& info = reader.info;
  reader.read_header(file);
  options.check_size(info.image_width, info.image_height);
  // Truncated arithmetic-coded data gives no warning.
  if (info.arith_code != FALSE) throw BadImage("arithmetic-coded JPEG files are not read");
  const int components = info.num_components;
  if (components != 1 && components != 3 && components != 4)
    throw BadImage(fmt::format("JPEG of {} components is not read", components));
  // Without Adobe's marker the inks may be inverted or not, or no CMYK at all.
  if (components == 4 && info.saw_Adobe_marker == FALSE)
    throw BadImage("JPEG of 4 components without Adobe's marker is not read");

  Decoded decoded;
  decoded.orientation = orientation_of(info);
  const bool transposed = decoded.orientation >= 5;
  info.scale_num = 1;
  info.scale_denom = 1;
  if (options.draft != nullptr)
    info.scale_denom = reduction_for(*options.draft, transposed ? info.image_width : info.image_height,
                                     transposed ? info.image_height : info.image_width);
  reader.calls.run([&] { jpeg_calc_output_dimensions(&info); });
  const std::int64_t pixels = std::int64_t{3} * info.output_width * info.output_height;
  std::int64_t coefficients = 0;  // of a file of several scans, which is held whole
  for (int c = 0; jpeg_has_multiple_scans(&info) != FALSE && c < components; ++c)
    coefficients +=
        std::int64_t{sizeof(JBLOCK)} * info.comp_info[c].width_in_blocks * info.comp_info[c].height_in_blocks;
  options.reserve(pixels + std::max(coefficients, decoded.orientation == 1 ? 0 : pixels));  // turning copies them
  Picture& picture = decoded.picture;
  picture.height = info.output_height;
  picture.width = info.output_width;
  picture.reduction = info.scale_denom;
  picture.channels = components == 1 ? 1 : 3;
  const std::size_t width = info.output_width, row_bytes = width * static_cast<std::size_t>(picture.channels);
  picture.pixels.resize(info.output_height * row_bytes);
  std::vector<JSAMPLE> inks(components == 4 ? 4 * width : 0);
  reader.calls.run([&] {
    // A progressive file needs 2 bytes for each coefficient of four components, and blocks at the edges.
    info.mem->max_memory_to_use =
        static_cast<long>(std::size_t{info.image_height} * info.image_width * 32 + file.size() + (8U << 20));
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      std::uint8_t* const to = picture.pixels.data() + info.output_scanline * row_bytes;
      JSAMPROW row = inks.empty() ? to : inks.data();
      jpeg_read_scanlines(&info, &row, 1);
      if (!inks.empty()) inks_to_rgb(row, width, to);
    }
    jpeg_finish_decompress(&info);
  });
  return decoded;
}

}  // namespace lenslet::photos
