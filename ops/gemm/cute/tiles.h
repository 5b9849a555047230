#pragma once
// The epilogue and launchers shared by gemm_cute's kernels and host code.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/context.h"
#include "ops/core/activation.cuh"
#include "ops/gemm/cute/gemm_cute.h"
#include "ops/gemm/cute/tile_order.h"

namespace lenslet::cuda {

/// The epilogue; also stores partial sums of split-K, as a plain f32 y with a matrix per split.
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
  bool vectors = false;  ///< n is a multiple of 4, y and residual are aligned to 4 elements
  bool by_tma = false;   ///< y and its rows are 16-byte aligned, as TMA requires

  /// Stores four accumulators: y[matrix][i][j] and the next three of the row, as far as they exist.
  __device__ void store(float4 acc, std::int64_t matrix, int i, int j) const;
  /// The same in two steps: loads c early, while accumulators are not known yet.
  __device__ float4 load_c(int i, int j) const;
  __device__ void store(float4 acc, float4 added, std::int64_t matrix, int i, int j) const;
};

CuteEpilogue cute_epilogue(const CuteCall& call);
/// The epilogue of split-K kernels: stores partial sums to call.workspace.
CuteEpilogue cute_reduce_split_k(const CuteCall& call);

/// Whether the build has cute_in_quick_build()'s kernels alone.
#ifdef LENSLET_CUDA_QUICK
inline constexpr bool cute_quick = true;
#else
inline constexpr bool cute_quick = false;
#endif
/// Throws Error(unsupported): the kernel is not in this build.
[[noreturn]] void refuse_quick_build();

// One per source file. Without split-K, or with split-K over a cluster, the product is then complete.
void gemm_cute_wgmma(const Context& context, const CuteCall& call, const CutePlan& plan);
void gemm_cute_mma(const Context& context, const CuteCall& call, const CutePlan& plan);
/// Adds the splits in order, then applies the epilogue.
void gemm_cute_reduce_split_k(const Context& context, const CuteCall& call, std::int64_t split_k);

}  // namespace lenslet::cuda
