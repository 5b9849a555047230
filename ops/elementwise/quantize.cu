#include "ops/elementwise/quantize.h"

#include "ops/elementwise/elementwise.cuh"
#include "ops/elementwise/quantize_cuda.h"

namespace lenslet::cuda {

namespace {

template <typename F, typename Y, typename X, typename Z>
void run(const Context& context, const BroadcastLoops& loops, const F& f, Y* y, const X* x, const float* scale,
         const Z* zero_point) {
  if (zero_point != nullptr)
    elementwise<Kernels::any>(context, loops, f, y, x, scale, zero_point);
  else
    elementwise<Kernels::any>(context, loops, f, y, x, scale);
}

}  // namespace

void quantize(const Context& context, DType to, SmallRounding rounding, const BroadcastLoops& loops, const float* x,
              const float* scale, const void* zero_point, void* y) {
  with_quantize(to, rounding, [&]<typename T>(const auto& f, T) {
    run(context, loops, f, static_cast<T*>(y), x, scale, static_cast<const T*>(zero_point));
  });
}

void dequantize(const Context& context, DType from, const BroadcastLoops& loops, const void* x, const float* scale,
                const void* zero_point, float* y) {
  with_dequantize(from, [&]<typename T>(const auto& f, T) {
    run(context, loops, f, y, static_cast<const T*>(x), scale, static_cast<const T*>(zero_point));
  });
}

}  // namespace lenslet::cuda
