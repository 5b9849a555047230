#pragma once
// The CPU convolution algorithms, one file each beside this one. Their order as candidates is in ops/conv/rows.cpp.

#include "ops/conv/algorithm.h"

namespace lenslet {

const ConvAlgorithm& conv_direct();         ///< direct.cpp: "direct", NCHW, takes everything
const ConvAlgorithm& conv_direct_packed();  ///< direct_packed.cpp: "direct_packed", NHWC, few input channels
const ConvAlgorithm& conv_depthwise();      ///< depthwise.cpp: "depthwise", NHWC, groups == C
const ConvAlgorithm& conv_im2col();         ///< im2col.cpp: "im2col", NHWC, columns (or the input itself) times filters
const ConvAlgorithm& conv_winograd_f2();    ///< winograd.cpp: "winograd_f2", NHWC, 3x3 stride 1 by F(2x2,3x3)
const ConvAlgorithm& conv_winograd_f4();    ///< the same by F(4x4,3x3)
const ConvAlgorithm& conv_winograd_f6();    ///< the same by F(6x6,3x3)

}  // namespace lenslet
