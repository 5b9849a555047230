#include "ops/conv/phases.h"

#include <algorithm>
#include <numeric>

namespace lenslet {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

/// Sets the convolution's pads and range so that it covers all positions that y needs. Pads cannot be negative, so it
/// may compute more.
void place(PhaseGroup& group, const TransposedAxis& axis, std::int64_t offset) {
  const std::int64_t lowest = floor_div(axis.pad, axis.stride);
  const std::int64_t highest = floor_div(axis.pad + axis.out - 1, axis.stride);
  std::int64_t first = lowest;
  if (group.taps > 0) {
    const std::int64_t span = (group.taps - 1) * group.dilation, before = offset + span;
    group.pad_begin = std::max<std::int64_t>(0, before - lowest);
    first = before - group.pad_begin;
    group.pad_end = std::max<std::int64_t>(0, highest - first + 1 + span - axis.in - group.pad_begin);
    group.out = axis.in + group.pad_begin + group.pad_end - span;
  }
  for (std::size_t i = 0; i < group.phases.size(); ++i) {
    const std::int64_t phase = group.phases[i].phase;
    const std::int64_t begin = ceil_div(axis.pad - phase, axis.stride);
    const std::int64_t count = floor_div(axis.pad + axis.out - 1 - phase, axis.stride) - begin + 1;
    if (count <= 0) continue;
    if (i > 0 && !group.runs.empty()) {
      PhaseGroup::Run& last = group.runs.back();
      const bool next =
          last.phase + last.phases == static_cast<std::int64_t>(i) && group.phases[i - 1].phase + 1 == phase;
      if (next && last.from == begin - first && last.count == count) {
        ++last.phases;
        continue;
      }
    }
    group.runs.push_back({.phase = static_cast<std::int64_t>(i),
                          .phases = 1,
                          .from = begin - first,
                          .count = count,
                          .to = begin * axis.stride + phase - axis.pad});
  }
}

}  // namespace

std::vector<PhaseGroup> phase_groups(const TransposedAxis& axis) {
  const std::int64_t common = std::gcd(axis.dilation, axis.stride), step = axis.stride / common;
  struct Seen {
    std::int64_t phase, tap, taps, offset;
  };
  std::vector<Seen> seen;
  for (std::int64_t phase = 0; phase < axis.stride; ++phase)
    seen.push_back({.phase = phase, .tap = 0, .taps = 0, .offset = 0});
  for (std::int64_t tap = 0; tap < std::min(axis.taps, step); ++tap) {
    const std::int64_t at = tap * axis.dilation, phase = at % axis.stride;
    seen[static_cast<std::size_t>(phase)] = {phase, tap, (axis.taps - 1 - tap) / step + 1, (at - phase) / axis.stride};
  }
  std::stable_sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) {
    return a.taps != b.taps ? a.taps > b.taps : a.offset < b.offset;
  });
  std::vector<PhaseGroup> groups;
  for (std::size_t begin = 0, end = 0; begin < seen.size(); begin = end) {
    const Seen& first = seen[begin];
    PhaseGroup group{.taps = first.taps, .tap_step = step, .dilation = axis.dilation / common};
    for (; end < seen.size() && seen[end].taps == first.taps && seen[end].offset == first.offset; ++end)
      group.phases.push_back({seen[end].phase, seen[end].tap});
    place(group, axis, first.offset);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace lenslet
