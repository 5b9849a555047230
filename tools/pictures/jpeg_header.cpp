#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "tools/pictures/bytes.h"
#include "tools/pictures/image_header.h"

namespace lenslet::tool {

namespace {

// Markers of ISO/IEC 10918-1, second byte after 0xFF.
constexpr std::uint32_t dht = 0xC4, soi = 0xD8, eoi = 0xD9, sos = 0xDA, app1 = 0xE1, app14 = 0xEE, tem = 0x01;

// A progressive file of ten scans is usual, of a hundred is a way to keep a decoder busy.
constexpr int max_scans = 100;

bool is_restart(std::uint32_t marker) { return marker >= 0xD0 && marker <= 0xD7; }
/// SOF0 to SOF15, of which C4 (DHT), C8 (JPG) and CC (DAC) are none.
bool is_frame(std::uint32_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/// The next marker's position at or after `at`, over entropy-coded data: FF 00 and restarts belong to it.
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

/// Huffman tables: class and slot, 16 counts of codes by length, as many symbols. stb_image 2.27 writes past its table
/// when the counts add up to more than 256, so they are added up here.
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

}  // namespace

ImageHeader read_jpeg_header(std::span<const std::byte> file) {
  ImageHeader header;
  Bytes bytes(file);
  std::uint32_t components = 0;
  bool adobe = false;
  std::vector<std::byte> exif;  // of several segments before the first scan, as Pillow joins them
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
      if (components != 0) throw BadImage("the JPEG file has two frames");
      if (length < 8) throw BadImage("the JPEG file's frame header is too short");
      if (marker > 0xC2) throw BadImage("lossless, hierarchical and arithmetic-coded JPEG files are not read");
      if (bytes.u8(at + 4) != 8) throw BadImage(fmt::format("JPEG of {} bits is not read", bytes.u8(at + 4)));
      header.height = bytes.u16(at + 5);
      header.width = bytes.u16(at + 7);
      components = bytes.u8(at + 9);
    } else if (marker == dht) {
      check_huffman_tables(segment);
    } else if (marker == app14 && starts_with(segment, "Adobe", 5)) {
      adobe = true;
    } else if (marker == app1 && scans == 0 && starts_with(segment, "Exif\0\0", 6)) {
      exif.insert(exif.end(), segment.begin() + 6, segment.end());
    } else if (marker == sos && ++scans > max_scans) {
      throw BadImage(fmt::format("the JPEG file has more than {} scans", max_scans));
    }
    at = next_marker(file, at + 2 + length);
  }
  if (components == 0 || scans == 0) throw BadImage("the JPEG file holds no picture");
  if (components != 1 && components != 3 && components != 4)
    throw BadImage(fmt::format("JPEG of {} components is not read", components));
  // Without Adobe's marker nobody says whether the inks are inverted, nor whether they are CMYK at all.
  if (components == 4 && !adobe) throw BadImage("JPEG of 4 components without Adobe's marker is not read");
  header.gray = components == 1;
  header.orientation = exif_orientation(exif);
  return header;
}

}  // namespace lenslet::tool
