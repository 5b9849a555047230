#pragma once
// PreactivatedConv in 16 bits, by the blocks of wgmma_gemm. Plain C++.
//
// wgmma_preactivated maps x in registers on its way to the products. wgmma_layer_norm multiplies x as it is and
// normalises the accumulators: with the scale in the filters W, and s the sum of a filter's weights as rounded,
//   sum_c W[k,c] (x[c] - mean) / deviation = (sum_c W[k,c] x[c] - mean s[k]) / deviation,
// where warps of their own take the moments from shared memory while the tensor cores multiply. The shift goes into the
// bias. In many waves that takes longer than the normalisation apart (DeiT-S at 64 images: 45 us a product, not 30, for
// 11), whose moments are taken once and not in each tile of a row.

#include <cstddef>
#include <memory>
#include <vector>

#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/preactivated.h"

namespace lenslet::cuda {

/// The configurations with a kernel: k-blocks of 64 channels, and consumers of 64 pixels. Of a LayerNormalization those
/// whose tiles multiprocessors hold at once, perhaps none.
std::vector<WgmmaGemmPlan> preactivated_tilings(const PreactivatedProblem& problem);

/// The blob: filters as WgmmaFilters, then floats. Of each filter, padded to whole tiles, the bias; then
/// wgmma_preactivated: the activation's limits, and for channels 2i and 2i + 1 both scales and both shifts, 0 up to
/// whole k-blocks; wgmma_layer_norm: of each filter the sum of its weights; epsilon, 1 / C, and a power of
/// two that undoes the one that brought the filters into the middle of their type's range.
inline constexpr int preactivated_limits = 4;  ///< floats before the scales; two are in use
/// Offset of the floats in bytes.
std::size_t preactivated_floats_at(const ConvProblem& problem, const WgmmaGemmPlan& plan);

std::unique_ptr<const BoundKernel> bind_wgmma_preactivated(const ConvProblem& problem, const WgmmaGemmPlan& plan);
std::unique_ptr<const BoundKernel> bind_wgmma_layer_norm(const ConvProblem& problem, const WgmmaGemmPlan& plan);

}  // namespace lenslet::cuda
