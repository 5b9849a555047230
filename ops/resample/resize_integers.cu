#include "base/cuda/launch.h"
#include "base/dtypes.h"
#include "ops/core/radix.cuh"
#include "ops/resample/resize_integers_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

struct IntegerItems {
  std::int64_t count;
  int axes;
  bool narrow;
  Radix inner, out[Shape::max_rank];
  std::int64_t in[Shape::max_rank];
};

/// One element per thread, in y's memory order. `known`: the number of axes; 0: p.axes. Products and sums in the CPU's
/// order, without FMA.
template <typename T, int known>
__global__ void __launch_bounds__(threads)
    integer_elements(const T* x, T* y, const LinearTap* __restrict__ table, const __grid_constant__ IntegerItems p) {
  wait_for_previous();
  const std::int64_t element = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (element >= p.count) return;
  constexpr int held = known == 0 ? Shape::max_rank : known;
  const int axes = known == 0 ? p.axes : known;
  std::int64_t outer = element;
  const std::int64_t inside = take_digit(outer, p.inner, p.narrow);
  LinearTap taps[held];
  const LinearTap* of_axis = table;
#pragma unroll
  for (int a = 0; a < axes; ++a) of_axis += p.out[a].value;
#pragma unroll
  for (int a = axes - 1; a >= 0; --a) {
    of_axis -= p.out[a].value;
    taps[a] = of_axis[take_digit(outer, p.out[a], p.narrow)];
  }
  float sum = 0;
#pragma unroll
  for (int corner = 0; corner < 1 << axes; ++corner) {
    std::int64_t at = outer;
    float weight = 1;
#pragma unroll
    for (int a = 0; a < axes; ++a) {
      const bool high = (corner >> (axes - 1 - a) & 1) != 0;
      at = at * p.in[a] + (high ? taps[a].high : taps[a].low);
    }
    // From the innermost axis outwards, in ONNX Runtime's order.
#pragma unroll
    for (int a = axes - 1; a >= 0; --a) {
      const bool high = (corner >> (axes - 1 - a) & 1) != 0;
      weight = __fmul_rn(weight, high ? taps[a].of_high : taps[a].of_low);
    }
    if (weight != 0) sum = __fadd_rn(sum, __fmul_rn(weight, static_cast<float>(x[at * p.inner.value + inside])));
  }
  y[element] = static_cast<T>(static_cast<int>(sum));
}

}  // namespace

void resize_integers(const Context& context, const IntegerResizeLaunch& l, DType dtype, const LinearTap* table,
                     const void* x, void* y) {
  IntegerItems p;
  p.count = l.outer * l.inner;
  p.axes = l.axes;
  p.inner = Radix(l.inner);
  for (int a = 0; a < l.axes; ++a) {
    p.count *= l.out[a];
    p.in[a] = l.in[a];
    p.out[a] = Radix(l.out[a]);
  }
  if (p.count == 0) return;
  p.narrow = p.count < Radix::narrow_end;
  const dim3 grid(blocks_for(p.count, threads)), block(threads);
  dispatch(dtype, Types<std::int8_t, std::uint8_t>(), [&]<typename T>(std::type_identity<T>) {
    const auto run = [&](auto kernel) {
      launch(context, kernel, grid, block, 0, static_cast<const T*>(x), static_cast<T*>(y), table, p);
    };
    if (l.axes == 2)
      run(integer_elements<T, 2>);
    else
      run(integer_elements<T, 0>);
  });
}

}  // namespace lenslet::cuda
