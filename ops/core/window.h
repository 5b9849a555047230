#pragma once
// Windows along one axis, for convolutions and pooling.

#include <cstdint>
#include <string_view>

namespace lenslet {

/// ONNX's auto_pad.
enum class AutoPad { notset, same_upper, same_lower, valid };
/// "NOTSET", "SAME_UPPER" ...
std::string_view to_string(AutoPad auto_pad) noexcept;
/// The reverse; "" is NOTSET. Error(invalid_model) for anything else.
AutoPad parse_auto_pad(std::string_view text);

/// True if `auto_pad` asks for ceil(size / stride) windows, whatever they span.
constexpr bool is_same(AutoPad auto_pad) { return auto_pad == AutoPad::same_upper || auto_pad == AutoPad::same_lower; }

/// An axis padded so that it has ceil(size / stride) windows.
struct SameWindows {
  std::int64_t count = 0, pad_before = 0, pad_after = 0;
};
/// `size` >= 0; `span` >= 1 from a window's first tap to its last, inclusive; `stride` >= 1. Pads only what the last
/// window needs; an odd zero goes behind the image with same_upper, before it with same_lower.
SameWindows same_windows(std::int64_t size, std::int64_t span, std::int64_t stride, AutoPad auto_pad);

}  // namespace lenslet
