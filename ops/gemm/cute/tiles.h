#pragma once
// What is done with a sum, and who queues what: shared by the kernels of gemm_cute and their host code.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/context.h"
#include "ops/core/activation.cuh"
#include "ops/gemm/cute/gemm_cute.h"
#include "ops/gemm/cute/tile_order.h"

namespace lenslet::cuda {

/// What happens to finished sums; also how sums of a slice are kept: as a plain f32 y with a matrix a slice.
struct CuteEpilogue {
  enum class Type : std::uint8_t { f32, f16, bf16 };
  Type type = Type::f32;
  float alpha = 1, beta = 1;
  const float* c = nullptr;
  std::int64_t c_row = 0, c_col = 0;
  const void* residual = nullptr;
  DeviceActivation activation;
  void* y = nullptr;
  int m = 0, n = 0;
  bool vectors = false;  ///< n is a multiple of 4, and y and the residual lie on 4 elements
  bool by_tma = false;   ///< y lies on 16 bytes, and so do its rows: what TMA wants

  /// Four sums, of y[matrix][i][j] and the three behind it in the row, as far as they are y's.
  __device__ void store(float4 sums, std::int64_t matrix, int i, int j) const;
  /// The same in two steps: what c has there, which may be on its way while sums are not yet known.
  __device__ float4 load_c(int i, int j) const;
  __device__ void store(float4 sums, float4 added, std::int64_t matrix, int i, int j) const;
};

CuteEpilogue cute_epilogue(const CuteCall& call);
/// What a kernel of several slices writes instead: sums to call.workspace.
CuteEpilogue cute_slice_sums(const CuteCall& call);

/// LENSLET_CUDA_QUICK: a build that compiles for CI and multiplies nothing has only some of the kernels.
#ifdef LENSLET_CUTE_QUICK
inline constexpr bool cute_quick = true;
#else
inline constexpr bool cute_quick = false;
#endif
/// Throws Error(unsupported): the kernel is not in this build.
[[noreturn]] void refuse_quick_build();

// One a source file. Each queues the products; with one slice, or slices that a cluster joins, they are done then.
void gemm_cute_wgmma(const Context& context, const CuteCall& call, const CutePlan& plan);
void gemm_cute_mma(const Context& context, const CuteCall& call, const CutePlan& plan);
/// The sums of `slices` slices in their order, then the epilogue.
void gemm_cute_add_slices(const Context& context, const CuteCall& call, std::int64_t slices);

}  // namespace lenslet::cuda
