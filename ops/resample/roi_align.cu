#include "base/cuda/launch.h"
#include "ops/core/radix.cuh"
#include "ops/resample/roi_align_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// One element per thread, in y's memory order.
__global__ void __launch_bounds__(threads)
    roi_elements(const float* x, const float* boxes, const std::int64_t* images, float* y,
                 const __grid_constant__ RoiAlignShape s, Radix channels, Radix rows, Radix columns, std::int64_t count,
                 bool channels_last, bool narrow) {
  wait_for_previous();
  std::int64_t roi = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (roi >= count) return;
  std::int64_t c = channels_last ? take_digit(roi, channels, narrow) : 0;
  const std::int64_t q = take_digit(roi, columns, narrow), p = take_digit(roi, rows, narrow);
  if (!channels_last) c = take_digit(roi, channels, narrow);
  const std::int64_t image = images[roi];
  float value = no_number;
  if (image >= 0 && image < s.n) value = RoiBin(s, boxes + 4 * roi, p, q).element(s, x + image * s.x_n + c * s.x_c);
  y[roi * s.y_n + c * s.y_c + p * s.y_p + q * s.y_q] = value;
}

}  // namespace

void roi_align(const Context& context, const RoiAlignShape& s, const float* x, const float* boxes,
               const std::int64_t* images, float* y) {
  const std::int64_t count = s.rois * s.c * s.p * s.q;
  if (count == 0) return;
  launch(context, roi_elements, dim3(blocks_for(count, threads)), dim3(threads), 0, x, boxes, images, y, s, Radix(s.c),
         Radix(s.p), Radix(s.q), count, s.y_c == 1 && s.c > 1, count < Radix::narrow_end);
}

}  // namespace lenslet::cuda
