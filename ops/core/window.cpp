#include "ops/core/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lenslet/error.h"

namespace lenslet {
namespace {

constexpr std::string_view names[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};  // by AutoPad

}  // namespace

std::string_view to_string(AutoPad auto_pad) noexcept { return names[static_cast<std::size_t>(auto_pad)]; }

AutoPad parse_auto_pad(std::string_view text) {
  if (text.empty()) return AutoPad::notset;
  const auto* found = std::find(std::begin(names), std::end(names), text);
  if (found != std::end(names)) return static_cast<AutoPad>(found - std::begin(names));
  throw Error(ErrorKind::invalid_model, fmt::format("attribute 'auto_pad' is '{}'", text));
}

SameWindows same_windows(std::int64_t size, std::int64_t span, std::int64_t stride, AutoPad auto_pad) {
  SameWindows windows;
  windows.count = size / stride + (size % stride != 0 ? 1 : 0);
  // The last window's remainder is computed first: sums of sizes and spans from a file may overflow.
  const std::int64_t left = size - (windows.count - 1) * stride;
  const std::int64_t total = std::max<std::int64_t>(0, span - left);
  windows.pad_before = auto_pad == AutoPad::same_upper ? total / 2 : total - total / 2;
  windows.pad_after = total - windows.pad_before;
  return windows;
}

}  // namespace lenslet
