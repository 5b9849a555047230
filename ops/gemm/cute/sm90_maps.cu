// TMA descriptors for gemm_cute_sm90.cuh, and the dispatch on type.

#include <cudaTypedefs.h>

#include <string>

#include "base/cuda/check.h"
#include "lenslet/error.h"
#include "ops/gemm/cute/gemm_cute_sm90.cuh"

namespace lenslet::cuda {
namespace {

using Encode = PFN_cuTensorMapEncodeTiled_v12000;

/// libcuda's entry, looked up through the runtime: nothing links libcuda.
Encode encode_tiled() {
  static const Encode entry = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess)
      throw Error(ErrorKind::device, "the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12");
    return reinterpret_cast<Encode>(found);
  }();
  return entry;
}

struct Matrices {
  const void* data = nullptr;
  CUtensorMapDataType type{};
  cuuint64_t element = 2;  ///< bytes
  std::int64_t columns = 1, rows = 1, count = 1;
  std::int64_t ld = 1, step = 1;  ///< elements
};

/// Boxes of 128 or 64 bytes by `box_rows`.
CUtensorMap map_of(const Matrices& matrices, int box_rows, cuuint64_t box_bytes = 128) {
  const auto size = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
  const cuuint64_t sizes[] = {size(matrices.columns), size(matrices.rows), size(matrices.count)};
  const cuuint64_t strides[] = {size(matrices.ld) * matrices.element, size(matrices.step) * matrices.element};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_bytes / matrices.element), static_cast<cuuint32_t>(box_rows),
                            1};
  const cuuint32_t every[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode_tiled()(&map, matrices.type, 3, const_cast<void*>(matrices.data), sizes, strides, box,
                                         every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                         box_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Error(ErrorKind::device, "cuTensorMapEncodeTiled failed (" + std::to_string(result) + ")");
  return map;
}

}  // namespace

CUtensorMap sm90_operand_map(const CuteOperand& operand, std::int64_t rows, std::int64_t columns, std::int64_t count,
                             int box_rows, Sm90Operand type) {
  const bool one = operand.step == 0;
  return map_of({.data = operand.data,
                 .type = type == Sm90Operand::fp16   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                         : type == Sm90Operand::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                     : CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
                 .element = type == Sm90Operand::tf32 ? cuuint64_t{4} : cuuint64_t{2},
                 .columns = columns,
                 .rows = rows,
                 .count = one ? 1 : count,
                 .ld = operand.ld,
                 .step = one ? operand.ld * rows : operand.step},
                box_rows);
}

CUtensorMap sm90_y_map(const CuteEpilogue& epilogue, std::int64_t count, int columns) {
  const bool floats = epilogue.type == CuteEpilogue::Type::f32;
  return map_of({.data = epilogue.y,
                 .type = floats                                     ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                         : epilogue.type == CuteEpilogue::Type::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                    : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                 .element = floats ? cuuint64_t{4} : cuuint64_t{2},
                 .columns = epilogue.n,
                 .rows = epilogue.m,
                 .count = count,
                 .ld = epilogue.n,
                 .step = std::int64_t{epilogue.m} * epilogue.n},
                cute_part_rows, static_cast<cuuint64_t>(cute_part_columns(columns, floats ? 4 : 2)) * (floats ? 4 : 2));
}

void gemm_cute_wgmma(const Context& context, const CuteCall& call, const CutePlan& plan) {
  switch (call.problem.multiply) {
    case Numerics::Multiply::fp16:
      return gemm_cute_wgmma_fp16(context, call, plan);
    case Numerics::Multiply::bf16:
      return gemm_cute_wgmma_bf16(context, call, plan);
    case Numerics::Multiply::tf32:
      return gemm_cute_wgmma_tf32(context, call, plan);
    case Numerics::Multiply::fp32:
      break;
  }
  throw Error(ErrorKind::internal, "wgmma does not multiply in fp32");
}

}  // namespace lenslet::cuda
