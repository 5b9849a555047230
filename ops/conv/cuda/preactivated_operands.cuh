#pragma once
// What a run of PreactivatedConv gives to the launches of wgmma_gemm: the bias lies in the blob.

#include <cstddef>

#include "base/aligned_format.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/wgmma_maps.cuh"
#include "ops/conv/preactivated.h"

namespace lenslet::cuda {

inline WgmmaOperands preactivated_operands(const ConvProblem& p, std::size_t floats_at, const KernelRun& run) {
  using Op = PreactivatedConvOp;
  return {.x = run.in<void>(Op::input),
          .x_pixel = run.inputs[Op::input].format().pixel_pitch,
          .filters = run.blob,
          .bias = reinterpret_cast<const float*>(run.blob + floats_at),
          .residual = run.in<void>(Op::residual),
          .y = run.out<void>(),
          .y_pixel = y_pixel(aligned_channels(p.k, p.storage), run)};
}

}  // namespace lenslet::cuda
