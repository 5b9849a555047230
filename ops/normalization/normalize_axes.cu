#include "ops/normalization/normalize_axes.h"

#include "ops/elementwise/elementwise.cuh"
#include "ops/reduce/reduce_kernel.cuh"

namespace lenslet::cuda {

void normalize_axes(const Context& context, AxesNorm norm, const reduce::Loops& statistics, const BroadcastLoops& map,
                    const float* x, float* y, std::byte* workspace, std::size_t partials) {
  auto* maps = reinterpret_cast<AxesMap*>(workspace);
  reduce_by<AxesNormFold>(context, statistics, norm, x, maps, workspace + partials);
  elementwise<Kernels::any>(context, map, ApplyAxesMap(), y, x, maps);
}

}  // namespace lenslet::cuda
