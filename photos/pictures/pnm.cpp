#include <fmt/format.h>

#include <cmath>

#include "photos/pictures/bytes.h"
#include "photos/pictures/decoders.h"

namespace lenslet::photos {

namespace {

constexpr std::uint32_t max_number = 1'000'000'000;

/// Reads the header's numbers: white space and comments, then decimal digits.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file, std::size_t at) : file_(file), at_(at) {}

  std::uint32_t number() {
    skip_blanks();
    if (!is_digit(peek())) throw BadImage("the PNM file's header makes no sense");
    std::uint32_t value = 0;
    for (; is_digit(peek()); ++at_) {
      value = value * 10 + static_cast<std::uint32_t>(peek() - '0');
      if (value > max_number) throw BadImage("the PNM file's header holds an absurd number");
    }
    return value;
  }
  /// The pixels' offset: one white space after the last number.
  std::size_t pixels_at() {
    if (!is_blank(peek())) throw BadImage("the PNM file's header makes no sense");
    return at_ + 1;
  }

 private:
  static bool is_digit(int c) { return c >= '0' && c <= '9'; }
  static bool is_blank(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  int peek() const { return at_ < file_.size() ? std::to_integer<int>(file_[at_]) : -1; }
  void skip_blanks() {
    for (;; ++at_) {
      if (peek() == '#')
        while (peek() != '\n' && peek() != '\r' && peek() != -1) ++at_;
      if (!is_blank(peek())) return;
    }
  }

  std::span<const std::byte> file_;
  std::size_t at_;
};

}  // namespace

Decoded decode_pnm(std::span<const std::byte> file, const CheckSize& check_size) {
  const char kind = file.size() > 1 ? static_cast<char>(file[1]) : '?';
  if (kind != '5' && kind != '6') throw BadImage(fmt::format("PNM of kind P{} is not read (P5 and P6 are)", kind));
  HeaderReader reader(file, 2);
  Decoded decoded;
  Picture& picture = decoded.picture;
  picture.width = reader.number();
  picture.height = reader.number();
  const std::uint32_t maximum = reader.number();
  if (maximum < 1 || maximum > 65535) throw BadImage("the PNM file's largest value is not in 1 to 65535");
  const std::size_t pixels_at = reader.pixels_at();
  check_size(picture.width, picture.height);
  picture.channels = kind == '6' ? 3 : 1;
  const auto elems = static_cast<std::size_t>(picture.height * picture.width * picture.channels);
  const std::size_t sample_bytes = maximum > 255 ? 2 : 1;
  if ((file.size() - pixels_at) / sample_bytes < elems) throw BadImage("the PNM file is cut short");
  Bytes bytes(file.subspan(pixels_at));
  picture.pixels.resize(elems);
  for (std::size_t i = 0; i < elems; ++i) {
    const std::uint32_t sample = sample_bytes == 2 ? bytes.u16(2 * i) : bytes.u8(i);
    if (sample > maximum) throw BadImage("the PNM file holds a value above its own maximum");
    // In double, halves to even, as in Pillow.
    picture.pixels[i] = static_cast<std::uint8_t>(std::nearbyint(static_cast<double>(sample) / maximum * 255));
  }
  return decoded;
}

}  // namespace lenslet::photos
