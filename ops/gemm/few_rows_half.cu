// Few rows of 16-bit types: half the bytes of B, and as many sums in fp32.

#include "lenslet/error.h"
#include "ops/gemm/few_rows.cuh"

namespace lenslet::cuda {
namespace {

template <int rows, typename T, typename Y>
void launch_rows(const Context& context, const CuteCall& call, int slices) {
  const CuteProblem& p = call.problem;
  const DeviceEpilogue epilogue{call.alpha, call.beta,  call.c,
                                call.c_row, call.c_col, DeviceActivation(call.activation)};
  launch(context, p.aligned ? few_rows_kernel<rows, Eight<T>, T, Y> : few_rows_kernel<rows, T, T, Y>,
         dim3(static_cast<unsigned>(few_rows_blocks(p.n, slices))), dim3(32 * few_rows_warps), 0,
         static_cast<const T*>(call.a.data), call.a.ld, static_cast<const T*>(call.b.data), call.b.ld,
         static_cast<Y*>(call.y), p.m, p.n, p.k, slices, epilogue);
}

template <typename T, typename Y>
void launch_types(const Context& context, const CuteCall& call, int slices) {
  const std::int64_t m = call.problem.m;
  const auto launch_them = m == 1   ? launch_rows<1, T, Y>
                           : m == 2 ? launch_rows<2, T, Y>
                           : m <= 4 ? launch_rows<4, T, Y>
                                    : launch_rows<8, T, Y>;
  launch_them(context, call, slices);
}

}  // namespace

void gemm_few_rows_half(const Context& context, const CuteCall& call, int slices) {
  const bool ieee = call.problem.multiply == Numerics::Multiply::fp16, f32 = call.problem.y_type == DType::f32;
  const auto launch_them = ieee  ? f32 ? launch_types<__half, float> : launch_types<__half, __half>
                            : f32 ? launch_types<__nv_bfloat16, float>
                                 : launch_types<__nv_bfloat16, __nv_bfloat16>;
  launch_them(context, call, slices);
}

}  // namespace lenslet::cuda
