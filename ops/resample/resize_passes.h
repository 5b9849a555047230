#pragma once
// A Resize as passes along one axis each, and CUDA's kernel for them.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/core/kernel.h"
#include "ops/resample/taps.h"

namespace lenslet {

/// One axis of [outer, in, inner] to [outer, out, inner].
struct ResizePass {
  std::int64_t outer = 1, in = 1, out = 1, inner = 1;
  std::size_t axis = 0;  ///< in memory order
  AxisTaps taps;
  std::int64_t elems() const { return outer * out * inner; }
};

/// The changed axes, those that shrink most first, which makes later passes smaller. All sizes are positive.
std::vector<ResizePass> resize_passes(const ResizeRule& rule, std::span<const ResizedAxis> axes, const Format& format);

/// CUDA's kernel for these passes; its table is the blob written by fill_resize_table().
std::unique_ptr<const BoundKernel> bind_resize_cuda(std::span<const ResizePass> passes, const Binding& binding,
                                                    float extrapolation);
/// The number of launches.
std::size_t resize_launches(std::span<const ResizePass> passes);
std::size_t resize_table_bytes(std::span<const ResizePass> passes);
void fill_resize_table(std::span<const ResizePass> passes, std::span<std::byte> table);

}  // namespace lenslet
