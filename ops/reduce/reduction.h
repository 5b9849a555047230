#pragma once
// Shared by reducing operators: axes, and the bound kernels of the Reduce family and global pooling.

#include <memory>
#include <optional>
#include <string>

#include "ops/core/kernel.h"
#include "ops/reduce/reduce_kernels.h"

namespace lenslet::reduce {

/// The axes of input 0 that an operator reduces.
struct Axes {
  std::array<bool, Shape::max_rank> reduced{};
  bool keep_dims = true;  ///< they stay, of length 1

  /// The output's shape for an input of shape `x`.
  Shape output(const Shape& x) const;
  /// For Op::axis_map: kept axes are followed; inputs from 1 on are parameters.
  AxisMap map(std::size_t inputs, int rank) const;
  /// From input 0 to output 0, in the input's memory order.
  Loops loops(const Binding& binding) const;
};

/// SimpleKernel::formats_for of the CPU's means and pools: bfloat16 is read in nhwc alone.
inline constexpr Format nhwc_only[] = {formats::nhwc};
inline std::span<const Format> formats_of_mean(const Problem& problem) {
  return problem.inputs()[0].type.dtype == DType::bf16 ? std::span<const Format>(nhwc_only) : nchw_or_nhwc;
}
/// Why the CPU does not reduce this bfloat16 input; nothing for means of the planes of a 4-D one, in nhwc.
std::optional<std::string> refuse_brain(ReduceKind kind, int rank, const Axes& axes);

/// A reduction of input 0 to output 0; `dtype` one of ReduceTypes, for max and min of ExtremeTypes (reduce_cuda.h), on
/// CUDA also f16 and bf16, on the CPU bf16 where refuse_brain() says nothing.
std::unique_ptr<const BoundKernel> on_cpu(ReduceKind kind, DType dtype, const Loops& loops);
std::unique_ptr<const BoundKernel> on_cuda(ReduceKind kind, DType dtype, const Loops& loops);

}  // namespace lenslet::reduce
