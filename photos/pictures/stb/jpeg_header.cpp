#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "photos/pictures/bytes.h"
#include "photos/pictures/stb/image_header.h"

namespace lenslet::photos {

namespace {

// Markers of ISO/IEC 10918-1, second byte after 0xFF.
constexpr std::uint32_t dht = 0xC4, soi = 0xD8, eoi = 0xD9, sos = 0xDA, app0 = 0xE0, app1 = 0xE1, app14 = 0xEE,
                        comment = 0xFE, tem = 0x01;

// Ten scans are usual in a progressive file; a hundred would be an attack on the decoder's time.
constexpr int max_scans = 100;

bool is_restart(std::uint32_t marker) { return marker >= 0xD0 && marker <= 0xD7; }
/// SOF0 to SOF15, without C4 (DHT), C8 (JPG) and CC (DAC).
bool is_frame(std::uint32_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/// Position of the next marker at or after `at`, skipping entropy-coded data with its FF 00 and restarts.
std::size_t next_marker(std::span<const std::byte> file, std::size_t at) {
  while (at + 1 < file.size()) {
    const void* found = std::memchr(file.data() + at, 0xFF, file.size() - 1 - at);
    if (found == nullptr) break;
    at = static_cast<std::size_t>(static_cast<const std::byte*>(found) - file.data());
    const auto code = std::to_integer<std::uint32_t>(file[at + 1]);
    if (code == 0xFF) {
      ++at;  // fill byte
    } else if (code == 0 || is_restart(code)) {
      at += 2;
    } else {
      return at;
    }
  }
  throw BadImage("the JPEG file is cut short (no end-of-image marker)");
}

/// Huffman tables: class and slot, 16 counts of codes by length, then the symbols. stb_image 2.27 writes past its table
/// when the counts sum to more than 256, so this checks the sum.
void check_huffman_tables(std::span<const std::byte> segment) {
  Bytes bytes(segment);
  for (std::size_t at = 0; at < segment.size();) {
    std::size_t symbols = 0;
    for (std::size_t i = 1; i <= 16; ++i) symbols += bytes.u8(at + i);
    at += 17 + symbols;
    if (symbols > 256 || bytes.overrun() || at > segment.size())
      throw BadImage("the JPEG file is damaged (a Huffman table makes no sense)");
  }
}

bool starts_with(std::span<const std::byte> bytes, const char* text, std::size_t size) {
  return bytes.size() >= size && std::memcmp(bytes.data(), text, size) == 0;
}

/// Determines the colour space as in libjpeg, from the markers before the first scan.
struct Colors {
  std::uint32_t components = 0;
  bool jfif = false, adobe = false, ids_rgb = false;
  std::uint32_t transform = 0;             ///< in Adobe's marker
  std::vector<std::size_t> markers, reds;  ///< offsets of APP0 and APP14, and of the first component's id
};

/// Rewrites the file so that stb_image (2.27) decodes it correctly. stb's colour rules differ from libjpeg's, so one
/// Adobe marker states libjpeg's decision and the other hints are removed. A scan of a damaged file may use undefined
/// Huffman tables, which makes stb read uninitialised memory beyond its arrays (found by fuzzing). So eight empty
/// tables come first, which decode nothing ("bad huffman code"); the file's own replace them.
std::vector<std::byte> decodable(std::span<const std::byte> file, const Colors& colors) {
  const bool rgb = !colors.jfif && (colors.adobe ? colors.transform == 0 : colors.ids_rgb);
  const bool cmyk = colors.transform == 0;
  const std::uint32_t transform = colors.components == 4 ? (cmyk ? 0 : 2) : (rgb ? 0 : 1);
  constexpr std::uint32_t tables = 8, table_bytes = 17;  // class and slot, 16 counts of codes by length
  std::vector<std::byte> head;
  const auto put = [&head](std::initializer_list<std::uint32_t> values) {
    for (const std::uint32_t value : values) head.push_back(static_cast<std::byte>(value));
  };
  put({0xFF, soi, 0xFF, app14, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, transform});
  put({0xFF, dht, 0, 2 + tables * table_bytes});
  for (std::uint32_t table = 0; table < tables; ++table) {
    put({table / 4 << 4 | table % 4});
    head.resize(head.size() + table_bytes - 1);
  }
  std::vector<std::byte> result(head.size() + file.size() - 2);
  std::copy(head.begin(), head.end(), result.begin());
  const auto body = std::span(result).subspan(head.size() - 2);
  std::copy(file.begin() + 2, file.end(), body.begin() + 2);
  for (const std::size_t at : colors.markers) body[at] = static_cast<std::byte>(comment);
  if (colors.ids_rgb)
    for (const std::size_t at : colors.reds) body[at] = std::byte{'r'};
  return result;
}

}  // namespace

ImageHeader read_jpeg_header(std::span<const std::byte> file) {
  ImageHeader header;
  Bytes bytes(file);
  Colors colors;
  std::vector<std::byte> exif;  // joined from several segments before the first scan, as in Pillow
  int scans = 0;
  if (bytes.u16(0) != (0xFF00 | soi)) throw BadImage("this is no JPEG file");
  for (std::size_t at = next_marker(file, 2);;) {
    const std::uint32_t marker = bytes.u8(at + 1);
    if (marker == eoi) break;
    if (marker == tem || marker == soi) {
      at = next_marker(file, at + 2);
      continue;
    }
    const std::size_t length = bytes.u16(at + 2);
    if (bytes.overrun() || length < 2 || file.size() - at - 2 < length)
      throw BadImage("the JPEG file is cut short (inside a segment)");
    const auto segment = file.subspan(at + 4, length - 2);
    if (is_frame(marker)) {
      if (colors.components != 0) throw BadImage("the JPEG file has two frames");
      if (length < 8) throw BadImage("the JPEG file's frame header is too short");
      if (marker > 0xC2) throw BadImage("lossless, hierarchical and arithmetic-coded JPEG files are not read");
      if (bytes.u8(at + 4) != 8) throw BadImage(fmt::format("JPEG of {} bits is not read", bytes.u8(at + 4)));
      header.height = bytes.u16(at + 5);
      header.width = bytes.u16(at + 7);
      colors.components = bytes.u8(at + 9);
      colors.ids_rgb = colors.components == 3 && length >= 17 && bytes.u8(at + 10) == 'R' && bytes.u8(at + 13) == 'G' &&
                       bytes.u8(at + 16) == 'B';
      colors.reds.push_back(at + 10);
    } else if (marker == dht) {
      check_huffman_tables(segment);
    } else if (marker == app0 || marker == app14) {
      colors.markers.push_back(at + 1);
      if (scans == 0 && marker == app0 && segment.size() >= 14 && starts_with(segment, "JFIF\0", 5)) colors.jfif = true;
      if (scans == 0 && marker == app14 && segment.size() >= 12 && starts_with(segment, "Adobe", 5)) {
        colors.adobe = true;
        colors.transform = bytes.u8(at + 15);
      }
    } else if (marker == app1 && scans == 0 && starts_with(segment, "Exif\0\0", 6)) {
      exif.insert(exif.end(), segment.begin() + 6, segment.end());
    } else if (marker == sos) {
      if (++scans > max_scans) throw BadImage(fmt::format("the JPEG file has more than {} scans", max_scans));
      for (std::size_t id = at + 5; id + 3 < at + 2 + length; id += 2)
        if (bytes.u8(id) == 'R') colors.reds.push_back(id);
    }
    at = next_marker(file, at + 2 + length);
  }
  const std::uint32_t components = colors.components;
  if (components == 0 || scans == 0) throw BadImage("the JPEG file holds no picture");
  if (components != 1 && components != 3 && components != 4)
    throw BadImage(fmt::format("JPEG of {} components is not read", components));
  // Without Adobe's marker the inks may be inverted, or may not be CMYK at all.
  if (components == 4 && !colors.adobe) throw BadImage("JPEG of 4 components without Adobe's marker is not read");
  header.gray = components == 1;
  header.orientation = exif_orientation(exif);
  header.decoded_as = decodable(file, colors);
  return header;
}

}  // namespace lenslet::photos
