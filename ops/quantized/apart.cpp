#include "ops/quantized/apart.h"

#include <algorithm>
#include <map>

namespace lenslet {

ApartAxis::ApartAxis(std::int64_t in_size, std::int64_t out_size, std::int64_t count, std::int64_t step,
                     std::int64_t dilation, std::int64_t pad_before)
    : in(in_size), out(out_size), stride(step), pad(pad_before) {
  // Taps that are a multiple of the stride apart share a part ...
  std::map<std::int64_t, std::int64_t> parts;
  for (std::int64_t tap = 0; tap < count; ++tap) {
    const std::int64_t at = tap * dilation;
    const auto [part, added] = parts.try_emplace(at % stride, static_cast<std::int64_t>(bases.size()));
    if (added) bases.push_back(at % stride);
    taps.push_back({part->second, at / stride});
    length = std::max(length, out + at / stride);
  }
  // ... unless that is larger than separate parts, or mostly elements where no output begins.
  const std::int64_t shared = static_cast<std::int64_t>(bases.size()) * length, each = count * out;
  if (shared <= each && (length <= 2 * out || each > 16 * shared)) return;
  bases.clear();
  length = out;
  for (std::int64_t tap = 0; tap < count; ++tap) {
    taps[static_cast<std::size_t>(tap)] = {tap, 0};
    bases.push_back(tap * dilation);
  }
}

ApartPlane::ApartPlane(const ConvProblem& p)
    : h(p.h, p.p, p.r, p.stride_h, p.dilation_h, p.pad_top), w(p.w, p.q, p.s, p.stride_w, p.dilation_w, p.pad_left) {}

}  // namespace lenslet
