#include "ops/normalization/normalize_axes.h"

#include "base/dtypes.h"
#include "ops/elementwise/elementwise.cuh"
#include "ops/reduce/reduce_kernel.cuh"

namespace lenslet::cuda {

void normalize_axes(const Context& context, AxesNorm norm, const reduce::Loops& statistics, const BroadcastLoops& map,
                    DType dtype, const void* x, void* y, std::byte* workspace, std::size_t partials) {
  auto* maps = reinterpret_cast<AxesMap*>(workspace);
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    using Fold = typename std::conditional_t<is_half<T>, std::type_identity<HalfAxesNormFold<T>>,
                                             std::type_identity<AxesNormFold>>::type;
    reduce_by<Fold>(context, statistics, norm, x, maps, workspace + partials);
    elementwise<Kernels::any>(context, map, ApplyAxesMap(), static_cast<T*>(y), static_cast<const T*>(x), maps);
  });
}

}  // namespace lenslet::cuda
