#pragma once
// The CUDA convolution algorithms, one file each beside this one. Their order as candidates is in ops/conv/rows.cpp.
// Plain C++: included where there is no CUDA, too.

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// direct_reference.cu: "direct", NCHW, one thread an output, reads as the definition, takes everything, filters that
/// are computed by the network too.
const ConvAlgorithm& conv_direct();
/// direct_tile.cu: "direct_tile", NHWC, few input channels or odd kernels, up to 11x11: a block a spatial tile, input
/// with halo in shared memory.
const ConvAlgorithm& conv_direct_tile();
/// The ladder that leads there, each rung to be measured against the next.
const ConvAlgorithm& conv_direct_pixel();        ///< ladder/direct_pixel.cu: "direct_pixel", a thread an output pixel
const ConvAlgorithm& conv_direct_block();        ///< "direct_block": a thread a pixel and a block of output channels
const ConvAlgorithm& conv_direct_tile_padded();  ///< ladder/direct_tile_padded.cu: direct_tile on padded input
const ConvAlgorithm& conv_depthwise();           ///< depthwise.cu: "depthwise", NHWC, groups == C
const ConvAlgorithm& conv_im2col_gemm();    ///< im2col_gemm.cu: "im2col_gemm", NCHW, columns times filters by cuBLAS
const ConvAlgorithm& conv_winograd_f2();    ///< winograd.cu: "winograd_f2", NHWC, 3x3 stride 1 by F(2x2,3x3)
const ConvAlgorithm& conv_winograd_f4();    ///< the same by F(4x4,3x3)
const ConvAlgorithm& conv_implicit_gemm();  ///< implicit_gemm.cu: "implicit_gemm", NHWC
const ConvAlgorithm& conv_implicit_gemm_nchw();  ///< "implicit_gemm_nchw"

}  // namespace lenslet::cuda
