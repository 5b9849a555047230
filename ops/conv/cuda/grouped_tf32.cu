// grouped_tf32: grouped convolutions with few channels a group in TF32, where the network allows it: float32 NHWC,
// operands rounded to nearest, accumulated in the order s, channels, r. Kernel: grouped_tf32.cuh; configurations:
// grouped_tf32_plan.cpp; refusals and filters: grouped_tf32.cpp. It differs from grouped_mma: a k-block is one eight,
// and warps share the filters of wide groups.
//
// An infinity times a neighbouring group's zero gives NaN, as in Winograd.

#include "ops/conv/cuda/grouped_tf32.cuh"

namespace lenslet::cuda {
namespace {

using GroupedTf32Kernel = void (*)(GroupedTf32);

template <int eights>
GroupedTf32Kernel kernel_for(int rows_together, std::int64_t stride) {
  if (rows_together == 1) return grouped_tf32_kernel<eights, 1, 2>;
  return stride == 1 ? grouped_tf32_kernel<eights, 3, 1> : grouped_tf32_kernel<eights, 3, 2>;
}
GroupedTf32Kernel kernel_for(std::int64_t eights, int rows_together, std::int64_t stride) {
  switch (eights) {
    case 1:
      return kernel_for<1>(rows_together, stride);
    case 2:
      return kernel_for<2>(rows_together, stride);
    case 3:
      return kernel_for<3>(rows_together, stride);
    default:
      return kernel_for<4>(rows_together, stride);
  }
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_grouped_tf32(const ConvProblem& p, const GroupedTf32Tiling& tiling) {
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  const auto blocks_over = [](std::int64_t size, std::int64_t block) { return (size + block - 1) / block; };
  GroupedTf32 call(p);
  call.set_eights = narrow(tiling.set_eights);
  call.block_channels = narrow(tiling.channels);
  call.filter_warps = narrow(tiling.warps / tiling.row_groups);
  call.tile_p = narrow(tiling.tile_p);
  call.q_shift = tiling.tile_q == 16 ? 4 : 3;
  call.line_pixels = narrow(tiling.phases * tiling.phase_pixels);
  call.halo_pixels = narrow(tiling.halo_pixels());
  call.pixel_vectors = narrow(tiling.pixel_vectors);
  call.laid_vectors = narrow(tiling.laid_vectors);
  call.chunks = FastDivider(blocks_over(p.c, tiling.channels));
  call.tiles_q = FastDivider(blocks_over(p.q, tiling.tile_q));
  call.tiles_p = FastDivider(blocks_over(p.p, tiling.tile_p));
  call.vectors = FastDivider(tiling.channels / 4);
  call.phase_pixels = FastDivider(tiling.phase_pixels);
  call.phases = FastDivider(tiling.phases);
  call.strides_w = FastDivider(p.stride_w);
  call.warps_a_set = FastDivider(tiling.set_eights / tiling.filter_eights);
  return std::make_unique<OneLaunch<GroupedTf32>>(
      p, call, kernel_for(tiling.filter_eights, grouped_tf32_rows_together(p), p.stride_h),
      dim3(static_cast<unsigned>(tiling.blocks)), static_cast<unsigned>(32 * tiling.warps), tiling.shared_bytes());
}

}  // namespace lenslet::cuda
