#include "ops/resample/resize_passes.h"

#include <algorithm>
#include <utility>

namespace lenslet {

std::vector<ResizePass> resize_passes(const ResizeRule& rule, std::span<const ResizedAxis> axes, const Format& format) {
  std::vector<std::size_t> order(axes.size());  // in memory
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (format == formats::nhwc) order = {0, 2, 3, 1};
  std::vector<std::size_t> changed;
  for (std::size_t at = 0; at < order.size(); ++at)
    if (axes[order[at]].changes) changed.push_back(at);
  std::ranges::stable_sort(changed, {}, [&](std::size_t at) {
    return static_cast<double>(axes[order[at]].out) / static_cast<double>(axes[order[at]].in);
  });
  std::vector<std::int64_t> dims;
  for (const std::size_t axis : order) dims.push_back(axes[axis].in);
  std::vector<ResizePass> passes;
  for (const std::size_t at : changed) {
    const ResizedAxis& axis = axes[order[at]];
    ResizePass pass{.in = axis.in, .out = axis.out, .axis = at, .taps = AxisTaps(rule, axis)};
    for (std::size_t i = 0; i < dims.size(); ++i) (i < at ? pass.outer : pass.inner) *= i == at ? 1 : dims[i];
    dims[at] = axis.out;
    passes.push_back(std::move(pass));
  }
  return passes;
}

}  // namespace lenslet
