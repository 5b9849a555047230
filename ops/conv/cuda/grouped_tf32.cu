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

std::unique_ptr<const BoundKernel> bind_grouped_tf32(const ConvProblem& p, const GroupedTf32Cut& cut) {
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  const auto blocks_over = [](std::int64_t size, std::int64_t block) { return (size + block - 1) / block; };
  GroupedTf32 call(p);
  call.set_eights = narrow(cut.set_eights);
  call.block_channels = narrow(cut.channels);
  call.filter_warps = narrow(cut.warps / cut.row_groups);
  call.tile_p = narrow(cut.tile_p);
  call.q_shift = cut.tile_q == 16 ? 4 : 3;
  call.line_pixels = narrow(cut.phases * cut.phase_pixels);
  call.patch_pixels = narrow(cut.patch_pixels());
  call.pixel_vectors = narrow(cut.pixel_vectors);
  call.laid_vectors = narrow(cut.laid_vectors);
  call.chunks = FastDivider(blocks_over(p.c, cut.channels));
  call.tiles_q = FastDivider(blocks_over(p.q, cut.tile_q));
  call.tiles_p = FastDivider(blocks_over(p.p, cut.tile_p));
  call.vectors = FastDivider(cut.channels / 4);
  call.phase_pixels = FastDivider(cut.phase_pixels);
  call.phases = FastDivider(cut.phases);
  call.strides_w = FastDivider(p.stride_w);
  call.warps_a_set = FastDivider(cut.set_eights / cut.filter_eights);
  return std::make_unique<OneLaunch<GroupedTf32>>(
      p, call, kernel_for(cut.filter_eights, grouped_tf32_rows_together(p), p.stride_h),
      dim3(static_cast<unsigned>(cut.blocks)), static_cast<unsigned>(32 * cut.warps), cut.shared_bytes());
}

}  // namespace lenslet::cuda
