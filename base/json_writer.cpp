#include "base/json_writer.h"

#include <cstddef>
#include <cstdint>

namespace lenslet {

namespace {

/// Bytes of the UTF-8 character at the start of `text`; 0 if invalid (overlong forms and surrogates are).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0U; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
    return follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
    return follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

void JsonWriter::element(std::string_view value) {
  comma();
  text_ += '"';
  while (!value.empty()) {
    const std::size_t length = utf8_length(value);
    const char c = value[0];
    if (length == 0)
      text_ += "\\ufffd";
    else if (c == '"' || c == '\\')
      (text_ += '\\') += c;
    else if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F))
      text_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      text_ += value.substr(0, length);
    value.remove_prefix(length == 0 ? 1 : length);
  }
  text_ += '"';
}

}  // namespace lenslet
