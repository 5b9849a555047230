// grouped_mma and grouped_tf32: grouped convolutions with few channels a group on tensor cores, NHWC, of 16 bits, and
// of float32 as TF32 where the network allows it: operands rounded to nearest. They add in the order of the filter's
// columns, channels, rows. Kernel: grouped_mma.cuh; configurations: grouped_mma_plan.cpp; refusals and filters:
// grouped_mma.cpp.
//
// An infinity times a neighbouring group's zero gives NaN, as in Winograd.

#include "ops/conv/cuda/grouped_mma.cuh"

namespace lenslet::cuda {
namespace {

using GroupedKernel = void (*)(GroupedCall);

template <typename T, int eights>
GroupedKernel kernel_for(int rows_together, std::int64_t stride) {
  if (rows_together == 1) return grouped_kernel<T, eights, 1, 2>;
  return stride == 1 ? grouped_kernel<T, eights, 3, 1> : grouped_kernel<T, eights, 3, 2>;
}
template <typename T>
GroupedKernel kernel_for(std::int64_t eights, int rows_together, std::int64_t stride) {
  switch (eights) {
    case 1:
      return kernel_for<T, 1>(rows_together, stride);
    case 2:
      return kernel_for<T, 2>(rows_together, stride);
    case 3:
      return kernel_for<T, 3>(rows_together, stride);
    default:
      return kernel_for<T, 4>(rows_together, stride);
  }
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_grouped(const ConvProblem& p, const GroupedTiling& tiling) {
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  GroupedCall call(p);
  call.set_eights = narrow(tiling.set_eights);
  call.steps = narrow(tiling.steps);
  call.block_channels = narrow(tiling.channels);
  call.filter_warps = narrow(tiling.warps / tiling.row_groups);
  call.tile_p = narrow(tiling.tile_p);
  call.q_shift = tiling.tile_q == 16 ? 4 : 3;
  call.line_pixels = narrow(tiling.phases * tiling.phase_pixels);
  call.halo_pixels = narrow(tiling.halo_pixels());
  call.pixel_vectors = narrow(tiling.pixel_vectors);
  call.laid_vectors = narrow(tiling.laid_vectors);
  call.chunks = FastDivider(ceil_div(p.c, tiling.channels));
  call.tiles_q = FastDivider(ceil_div(p.q, tiling.tile_q));
  call.tiles_p = FastDivider(ceil_div(p.p, tiling.tile_p));
  call.vectors = FastDivider(tiling.pixel_vectors - 1);
  call.phase_pixels = FastDivider(tiling.phase_pixels);
  call.phases = FastDivider(tiling.phases);
  call.strides_w = FastDivider(p.stride_w);
  call.warps_a_set = FastDivider(tiling.set_eights / tiling.filter_eights);
  const GroupedKernel kernel =
      dispatch(p.storage, Types<Float16, BFloat16, float>(), [&]<typename T>(std::type_identity<T>) {
        return kernel_for<T>(tiling.filter_eights, tiling.rows_together, p.stride_h);
      });
  return std::make_unique<OneLaunch<GroupedCall>>(p, call, kernel, static_cast<unsigned>(tiling.blocks),
                                                  static_cast<unsigned>(32 * tiling.warps), tiling.shared_bytes());
}

}  // namespace lenslet::cuda
