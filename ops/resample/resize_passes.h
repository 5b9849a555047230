#pragma once
// A Resize as steps of one axis each, and what CUDA makes of them.

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

/// The axes that change, those that shrink most first: what comes after them is less. Nothing is empty.
std::vector<ResizePass> resize_passes(const ResizeRule& rule, std::span<const ResizedAxis> axes, const Format& format);

/// The kernel of CUDA for these passes, its table the blob that fill_resize_table() writes.
std::unique_ptr<const BoundKernel> bind_resize_cuda(std::span<const ResizePass> passes, const Binding& binding,
                                                    float extrapolation);
/// So many kernels it takes, one after the other.
std::size_t resize_launches(std::span<const ResizePass> passes);
std::size_t resize_table_bytes(std::span<const ResizePass> passes);
void fill_resize_table(std::span<const ResizePass> passes, std::span<std::byte> table);

}  // namespace lenslet
