// Few rows of 16-bit types: half of B's bytes, fp32 accumulators. With more rows, converting and multiplying takes
// longer than reading, so tensor cores take over: 8 rows, 4096 columns, k 4096 take few_rows_kernel 17.0 us (H200, 24
// November 2026), few_rows_mma_kernel 11.5, memory 7.8.

#include "lenslet/error.h"
#include "ops/gemm/few_rows.cuh"
#include "ops/gemm/few_rows_mma.cuh"

namespace lenslet::cuda {
namespace {

template <int rows, typename T, typename Y>
void launch_rows(const Context& context, const CuteCall& call, int split_k) {
  const CuteProblem& p = call.problem;
  const DeviceEpilogue epilogue{call.alpha, call.beta,  call.c,
                                call.c_row, call.c_col, DeviceActivation(call.activation)};
  launch(context, p.aligned ? few_rows_kernel<rows, Eight<T>, T, Y> : few_rows_kernel<rows, T, T, Y>,
         dim3(static_cast<unsigned>(few_rows_blocks(p.n, split_k))), dim3(32 * few_rows_warps), 0,
         static_cast<const T*>(call.a.data), call.a.ld, static_cast<const T*>(call.b.data), call.b.ld,
         static_cast<Y*>(call.y), p.m, p.n, p.k, split_k, call.b_known ? 1 : 0, epilogue);
}

template <typename T, typename Y>
void launch_types(const Context& context, const CuteCall& call, int split_k) {
  with_few_rows(call.problem.m, [&]<int rows>() { launch_rows<rows, T, Y>(context, call, split_k); });
}

template <typename T, typename Y, int halves>
void launch_mma(const Context& context, const CuteCall& call, int eights) {
  const CuteProblem& p = call.problem;
  const FewRows few{
      .a = call.a.data,
      .b = call.b.data,
      .y = call.y,
      .a_ld = call.a.ld,
      .b_ld = call.b.ld,
      .m = static_cast<int>(p.m),
      .n = static_cast<int>(p.n),
      .k = static_cast<int>(p.k),
      .b_known = call.b_known ? 1 : 0,
      .epilogue = {call.alpha, call.beta, call.c, call.c_row, call.c_col, DeviceActivation(call.activation)}};
  const auto kernel = eights == 1 ? few_rows_mma_kernel<T, Y, halves, 1, 4> : few_rows_mma_kernel<T, Y, halves, 2, 2>;
  launch(context, kernel, dim3(blocks_for(p.n, 8 * eights)), dim3(32 * few_rows_mma_warps), 0, few);
}

template <typename T, typename Y>
void launch_mma_types(const Context& context, const CuteCall& call, int eights) {
  (call.problem.m <= 8 ? launch_mma<T, Y, 1> : launch_mma<T, Y, 2>)(context, call, eights);
}

}  // namespace

void gemm_few_rows_mma(const Context& context, const CuteCall& call, int eights) {
  const bool ieee = call.problem.multiply == Numerics::Multiply::fp16, f32 = call.problem.y_type == DType::f32;
  const auto launch_them = ieee  ? f32 ? launch_mma_types<__half, float> : launch_mma_types<__half, __half>
                            : f32 ? launch_mma_types<__nv_bfloat16, float>
                                 : launch_mma_types<__nv_bfloat16, __nv_bfloat16>;
  launch_them(context, call, eights);
}

void gemm_few_rows_half(const Context& context, const CuteCall& call, int split_k) {
  const bool ieee = call.problem.multiply == Numerics::Multiply::fp16, f32 = call.problem.y_type == DType::f32;
  const auto launch_them = ieee  ? f32 ? launch_types<__half, float> : launch_types<__half, __half>
                            : f32 ? launch_types<__nv_bfloat16, float>
                                 : launch_types<__nv_bfloat16, __nv_bfloat16>;
  launch_them(context, call, split_k);
}

}  // namespace lenslet::cuda
