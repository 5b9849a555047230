#pragma once
// Deinterleaves an image of bytes for strided convolutions: each tap then reads one run of elements for all output
// pixels.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/conv/problem.h"

namespace lenslet {

/// One axis in parts: element i of part `base` is element i * stride + base of the padded axis. Output o of a tap is
/// element o + shift of the tap's part.
struct ApartAxis {
  struct Tap {
    std::int64_t part = 0, shift = 0;
  };
  std::int64_t in, out, stride, pad;
  std::int64_t length = 0;          ///< of a part
  std::vector<std::int64_t> bases;  ///< of the parts
  std::vector<Tap> taps;

  ApartAxis(std::int64_t in_size, std::int64_t out_size, std::int64_t count, std::int64_t step, std::int64_t dilation,
            std::int64_t pad_before);
  /// Image index of element i of a part: outside if negative or at least `in`.
  std::int64_t source(std::size_t part, std::int64_t i) const { return i * stride + bases[part] - pad; }
};

/// Both axes: a plane is [part of h][part of w][line of the part][column of the part].
struct ApartPlane {
  ApartAxis h, w;

  explicit ApartPlane(const ConvProblem& p);
  std::int64_t elems() const {
    return static_cast<std::int64_t>(h.bases.size() * w.bases.size()) * h.length * w.length;
  }
  /// True if the parts equal the plane itself.
  bool is_image() const {
    return h.bases.size() == 1 && w.bases.size() == 1 && h.stride == 1 && w.stride == 1 && h.pad == 0 && w.pad == 0 &&
           h.length == h.in && w.length == w.in;
  }
  /// Offset of the first output's element for tap r, s, in parts with that many lines; output line p, column q is p *
  /// w.length + q further on.
  std::int64_t first(std::int64_t r, std::int64_t s, std::int64_t lines) const {
    const ApartAxis::Tap &down = h.taps[static_cast<std::size_t>(r)], &along = w.taps[static_cast<std::size_t>(s)];
    const std::int64_t part = down.part * static_cast<std::int64_t>(w.bases.size()) + along.part;
    return (part * lines + down.shift) * w.length + along.shift;
  }
};

/// Writes lines [begin, end) of the parts, [part of h][part of w][end - begin][w.length], of `image`: convert(from,
/// stride, count, to) writes the image's elements, `outside` fills the others.
template <typename T, typename Convert>
void take_apart(const ApartPlane& plane, std::int64_t begin, std::int64_t end, const std::uint8_t* image, T outside,
                T* to, const Convert& convert) {
  const ApartAxis &h = plane.h, &w = plane.w;
  for (std::size_t down = 0; down < h.bases.size(); ++down)
    for (std::size_t along = 0; along < w.bases.size(); ++along) {
      const std::int64_t left = w.source(along, 0), step = w.stride;
      const std::int64_t from = left < 0 ? std::min(w.length, (-left + step - 1) / step) : 0;
      const std::int64_t last = left < w.in ? std::clamp((w.in - 1 - left) / step + 1, from, w.length) : from;
      for (std::int64_t line = begin; line < end; ++line, to += w.length) {
        const std::int64_t source = h.source(down, line);
        if (source < 0 || source >= h.in) {
          std::fill(to, to + w.length, outside);
          continue;
        }
        std::fill(to, to + from, outside);
        if (from < last) convert(image + source * w.in + left + from * step, step, last - from, to + from);
        std::fill(to + last, to + w.length, outside);
      }
    }
}

}  // namespace lenslet
