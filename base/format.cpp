#include "base/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/boundary.h"

namespace lenslet {
namespace {

/// Takes a number from the front of `text`; nothing when there is none.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

std::string to_string(const Format& format) {
  return with_errors([&] {
    std::string text = format.order == Format::Order::row_major ? "nchw" : "nhwc";
    if (format.channel_block > 1) text += fmt::format("{}c", format.channel_block);
    const Format::Halo& halo = format.halo;
    if (halo != Format::Halo()) text += fmt::format("+{},{},{},{}", halo.top, halo.left, halo.bottom, halo.right);
    if (format.pixel_pitch != 0) text += fmt::format("/{}", format.pixel_pitch);
    return text;
  });
}

std::optional<Format> parse_format(std::string_view text) {
  Format format;
  if (text.starts_with("nhwc"))
    format.order = Format::Order::channels_last;
  else if (!text.starts_with("nchw"))
    return std::nullopt;
  text.remove_prefix(4);
  if (!text.empty() && text.front() != '+' && text.front() != '/') {
    const auto block = take_number(text);
    if (!block || *block < 2 || *block > Format::max_channel_block || !text.starts_with('c')) return std::nullopt;
    format.channel_block = static_cast<std::int32_t>(*block);
    text.remove_prefix(1);
  }
  if (text.starts_with('+')) {
    for (std::int64_t* side : {&format.halo.top, &format.halo.left, &format.halo.bottom, &format.halo.right}) {
      if (!text.starts_with(side == &format.halo.top ? '+' : ',')) return std::nullopt;
      text.remove_prefix(1);
      const auto size = take_number(text);
      if (!size) return std::nullopt;
      *side = *size;
    }
    if (format.halo == Format::Halo()) return std::nullopt;
  }
  if (text.starts_with('/') && format.order == Format::Order::channels_last) {
    text.remove_prefix(1);
    const auto pitch = take_number(text);
    if (!pitch || *pitch == 0) return std::nullopt;
    format.pixel_pitch = *pitch;
  }
  if (!text.empty()) return std::nullopt;
  return format;
}

Strides::Strides(const Format& format, const Shape& shape) {
  stored = 1;
  const auto lay = [&](int axis, std::int64_t dim) {
    step[static_cast<std::size_t>(axis)] = stored;
    stored *= dim;
  };
  if (shape.rank() != 4) {  // row-major, whatever the format says
    for (int axis = shape.rank(); axis-- > 0;) lay(axis, shape[axis]);
    return;
  }
  block = format.channel_block;
  stored = block;
  const std::int64_t blocks = (shape[1] + block - 1) / block;
  const std::int64_t lines = format.halo.top + shape[2] + format.halo.bottom;
  const std::int64_t columns = format.halo.left + shape[3] + format.halo.right;
  const bool last = format.order == Format::Order::channels_last;
  if (last) lay(1, blocks);
  const std::int64_t gap = last ? std::max<std::int64_t>(0, format.pixel_pitch - stored) : 0;
  stored += gap;
  lay(3, columns);
  lay(2, lines);
  if (!last) lay(1, blocks);
  lay(0, shape[0]);
  origin = format.halo.top * step[2] + format.halo.left * step[3];
  if (stored > 0) stored -= gap;  // behind the last pixel there is none
}

std::array<int, Shape::max_rank> memory_order(int rank, const Format& format) noexcept {
  std::array<int, Shape::max_rank> order{0, 1, 2, 3, 4, 5, 6, 7};
  if (rank == 4 && format.order == Format::Order::channels_last) order = {0, 2, 3, 1};
  return order;
}

bool same_bytes(const Format& a, const Format& b, const Shape& shape) {
  if (a == b || shape.rank() != 4) return true;
  const auto once = [](const Format& f) {
    return f.channel_block == 1 && f.halo == Format::Halo() && f.pixel_pitch == 0;
  };
  if (once(a) && once(b)) return shape[1] == 1 || (shape[2] == 1 && shape[3] == 1);
  const Strides of_a(a, shape), of_b(b, shape);
  if (of_a.stored != of_b.stored || of_a.origin != of_b.origin || of_a.block != of_b.block) return false;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] > 1 && of_a.step[static_cast<std::size_t>(axis)] != of_b.step[static_cast<std::size_t>(axis)])
      return false;
  return true;
}

double conversion_bytes(const Format& from, const Format& to, const Shape& shape, DType dtype) {
  const auto elems = static_cast<double>(Strides(from, shape).stored) + static_cast<double>(Strides(to, shape).stored);
  return elems * static_cast<double>(dtype_bytes(dtype));
}

}  // namespace lenslet
