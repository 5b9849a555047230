#include "ops/pool/col2im_cuda.h"

#include "base/cuda/launch.h"
#include "ops/core/radix.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

struct FoldAxis {
  Radix size;
  std::int64_t block, windows, stride, dilation, pad;

  /// The window whose block element `tap` falls on pixel `at`; -1: none.
  __device__ std::int64_t window(std::int64_t at, std::int64_t tap) const {
    const std::int64_t from = at + pad - tap * dilation, index = from / stride;
    return from >= 0 && index * stride == from && index < windows ? index : -1;
  }
};
struct Folding {
  FoldAxis axes[3];
  std::int64_t elems, windows;
};

__global__ void __launch_bounds__(threads) sum_windows(const float* x, float* y, const __grid_constant__ Folding fold) {
  wait_for_previous();
  const std::int64_t item = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (item >= fold.elems) return;
  const bool narrow = fold.elems < Radix::narrow_end;
  std::int64_t plane = item;
  const auto& [depth, height, width] = fold.axes;
  const std::int64_t w = take_digit(plane, width.size, narrow), h = take_digit(plane, height.size, narrow);
  const std::int64_t d = take_digit(plane, depth.size, narrow);
  std::int64_t row = plane * depth.block * height.block * width.block;  // of x
  float sum = 0;
  for (std::int64_t i = 0; i < depth.block; ++i)
    for (std::int64_t j = 0; j < height.block; ++j) {
      const std::int64_t at_d = depth.window(d, i), at_h = height.window(h, j);
      for (std::int64_t k = 0; k < width.block; ++k, ++row) {
        const std::int64_t at_w = width.window(w, k);
        if (at_d < 0 || at_h < 0 || at_w < 0) continue;
        sum += x[row * fold.windows + (at_d * height.windows + at_h) * width.windows + at_w];
      }
    }
  y[item] = sum;
}

}  // namespace

void col2im(const Context& context, const Fold& fold, const float* x, float* y) {
  Folding all{{}, fold.planes * fold.pixels(), fold.windows()};
  if (all.elems == 0) return;
  for (std::size_t i = 0; i < fold.axes.size(); ++i) {
    const Fold::Axis& axis = fold.axes[i];
    all.axes[i] = {Radix(axis.size), axis.block, axis.windows, axis.stride, axis.dilation, axis.pad};
  }
  launch(context, sum_windows, blocks_for(all.elems, threads), threads, 0, x, y, all);
}

}  // namespace lenslet::cuda
