// Launches the kernels of gemm_cute.

#include "ops/gemm/cute/gemm_cute.h"

#include <cstdint>

#include "lenslet/error.h"
#include "ops/gemm/cute/tiles.h"

namespace lenslet::cuda {
namespace {

bool lies_on(const void* data, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(data) % bytes == 0; }

/// True if the matrix and its rows of n elements are 16-byte aligned.
bool goes_by_tma(const void* data, std::int64_t n, std::size_t element_bytes) {
  return static_cast<std::size_t>(n) * element_bytes % 16 == 0 && lies_on(data, 16);
}

}  // namespace

CuteEpilogue cute_epilogue(const CuteCall& call) {
  const CuteProblem& p = call.problem;
  const std::size_t four = p.y_type == DType::f32 ? 16 : 8;
  return {.type = p.y_type == DType::f32   ? CuteEpilogue::Type::f32
                  : p.y_type == DType::f16 ? CuteEpilogue::Type::f16
                                           : CuteEpilogue::Type::bf16,
          .alpha = call.alpha,
          .beta = call.beta,
          .c = call.c,
          .c_row = call.c_row,
          .c_col = call.c_col,
          .residual = call.residual,
          .activation = DeviceActivation(call.activation),
          .y = call.y,
          .m = static_cast<int>(p.m),
          .n = static_cast<int>(p.n),
          .vectors = p.n % 4 == 0 && lies_on(call.y, four) && lies_on(call.residual, four),
          .by_tma = goes_by_tma(call.y, p.n, dtype_bytes(p.y_type))};
}

CuteEpilogue cute_reduce_split_k(const CuteCall& call) {
  const CuteProblem& p = call.problem;
  CuteEpilogue plain;
  plain.y = call.workspace;
  plain.m = static_cast<int>(p.m);
  plain.n = static_cast<int>(p.n);
  plain.vectors = p.n % 4 == 0;
  plain.by_tma = goes_by_tma(call.workspace, p.n, sizeof(float));
  return plain;
}

bool cute_built() { return true; }

void refuse_quick_build() {
  throw Error(ErrorKind::unsupported, "this build (LENSLET_CUDA_QUICK) lacks a kernel of gemm_cute");
}

void gemm_cute(const Context& context, const CuteCall& call, const CutePlan& plan) {
  (plan.core == CutePlan::Core::wgmma ? gemm_cute_wgmma : gemm_cute_mma)(context, call, plan);
  if (plan.split_k > 1 && !plan.joined()) gemm_cute_reduce_split_k(context, call, plan.split_k);
}

}  // namespace lenslet::cuda
