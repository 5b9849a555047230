#include "models/names.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "lenslet/error.h"
#include "models/limits.h"

namespace lenslet {

bool is_utf8(std::string_view text) noexcept {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<std::uint8_t>(text[i++]);
    if (lead < 0x80) continue;
    int more = 0;
    std::uint32_t code = 0, least = 0;
    if (lead >= 0xC2 && lead < 0xE0) {
      more = 1, code = lead & 0x1FU, least = 0x80;
    } else if (lead >= 0xE0 && lead < 0xF0) {
      more = 2, code = lead & 0x0FU, least = 0x800;
    } else if (lead >= 0xF0 && lead < 0xF5) {
      more = 3, code = lead & 0x07U, least = 0x10000;
    } else {
      return false;
    }
    for (; more > 0; --more) {
      if (i == text.size()) return false;
      const auto next = static_cast<std::uint8_t>(text[i++]);
      if ((next & 0xC0U) != 0x80U) return false;
      code = (code << 6U) | (next & 0x3FU);
    }
    if (code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
  }
  return true;
}

std::string_view why_not_shown(std::string_view text) noexcept {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "holds a control character";
  return is_utf8(text) ? std::string_view() : "is not UTF-8";
}

std::string_view checked_name(std::string_view name, std::string_view what) {
  if (name.size() > limits::name_bytes)
    throw Error(ErrorKind::limit, fmt::format("the name of {} has {} bytes; at most {} are allowed", what, name.size(),
                                              limits::name_bytes));
  if (const std::string_view why = why_not_shown(name); !why.empty())
    throw Error(ErrorKind::invalid_model, fmt::format("the name of {} {}", what, why));
  return name;
}

}  // namespace lenslet
