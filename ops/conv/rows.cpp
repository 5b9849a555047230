// Rows of Conv, ConvTranspose and their algorithms; each is in the file of its name unless a comment names another.

#include "ops/core/never.h"
#include "ops/families.h"

namespace lenslet {

OpParts conv(), conv_transpose(), deform_conv(), preactivated_conv(), separable_conv();

const Kernel &conv_depthwise(), &conv_winograd_f2(), &conv_winograd_f4(), &conv_winograd_f6(), &conv_im2col(),
    &conv_direct_packed(), &conv_direct_lines(), &conv_direct_rows(), &conv_kn2col(), &conv_im2col_nchw(),
    &conv_direct(), &conv_int8_depthwise(), &conv_int8_amx(), &conv_int8_packed(), &conv_int8_direct(),
    &conv_bf16_depthwise(), &conv_bf16_amx(), &conv_bf16_packed(), &conv_transpose_phases(),
    &conv_transpose_phases_nchw(), &conv_planes();
namespace cuda {
const Kernel &conv_depthwise(), &conv_winograd_f2(), &conv_winograd_f4(), &conv_winograd_f2_5x5(),
    &conv_winograd_f4_5x5(), &conv_winograd_f2_7x7(), &conv_fft(), &conv_few_pixels(), &conv_few_filters(),
    &conv_implicit_gemm(), &conv_stem(), &conv_grouped_mma(), &conv_grouped_tf32(), &conv_thin_mma(), &conv_mma_gemm(),
    &conv_wgmma_halo(), &conv_wgmma_gemm(), &conv_wgmma_tf32(), &conv_implicit_gemm_nchw(), &conv_im2col_gemm(),
    &conv_direct_tile(), &conv_direct_tile_padded(), &conv_direct_pixel(), &conv_direct_block(), &conv_direct(),
    &conv_transpose_phases(), &conv_transpose_phases_nchw(), &conv_planes(), &conv_wgmma_preactivated(),
    &conv_wgmma_layer_norm(), &separable_conv();
}

std::span<const OpRow> conv_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"Conv", "", 1, 2, 3, 1, 1, conv(), "1-D to 3-D"},
      {"ConvTranspose", "", 1, 2, 3, 1, 1, conv_transpose(), "1-D to 3-D"},
      {"DeformConv", "", 19, 3, 5, 1, 1, deform_conv(), "2-D"},
      {"PreactivatedConv", own, never, 4, 6, 1, 1, preactivated_conv(), "Batch- or LayerNormalization and a 1x1 Conv"},
      {"SeparableConv", own, never, 4, 6, 1, 1, separable_conv(), "a depthwise Conv and the 1x1 Conv behind it"},
  };
  return rows;
}

std::span<const KernelRow> conv_kernels() {
  // Specialised first; `direct` takes everything and is last. At equal cost the earlier one wins.
  static const KernelRow rows[] = {
      {"Conv", &conv_depthwise()},       // NHWC, groups == C
      {"Conv", &conv_winograd_f4()},     // winograd.cpp: NHWC, 3x3 stride 1 by F(4x4,3x3)
      {"Conv", &conv_winograd_f6()},     // the same by F(6x6,3x3)
      {"Conv", &conv_winograd_f2()},     // the same by F(2x2,3x3)
      {"Conv", &conv_im2col()},          // NHWC, im2col and GEMM, or GEMM on the input itself
      {"Conv", &conv_direct_packed()},   // NHWC, few input channels
      {"Conv", &conv_direct_lines()},    // NHWC, groups of few channels
      {"Conv", &conv_direct_rows()},     // NHWC, few channels or filters, long filters
      {"Conv", &conv_kn2col()},          // NHWC, a GEMM a tap: where much would be padding
      {"Conv", &conv_im2col_nchw()},     // NCHW, images of one line and 1-D; computed filters
      {"Conv", &conv_direct()},          // NCHW, computed filters and 1-D too
      {"Conv", &conv_int8_depthwise()},  // NHWC, groups == C, uint8 by int8, requantized
      {"Conv", &conv_int8_amx()},        // amx.cpp: NHWC, uint8 by int8, requantized
      {"Conv", &conv_int8_packed()},     // NHWC, uint8 by int8, requantized
      {"Conv", &conv_int8_direct()},     // NHWC, requantized
      {"Conv", &conv_bf16_depthwise()},  // NHWC, groups == C == K, bfloat16
      {"Conv", &conv_bf16_amx()},        // amx.cpp: NHWC, bfloat16
      {"Conv", &conv_bf16_packed()},     // NHWC, bfloat16
      // transposed_phases.cpp: convolutions of stride 1, by the above
      {"ConvTranspose", &conv_transpose_phases()},
      {"ConvTranspose", &conv_transpose_phases_nchw()},
      {"Conv", &conv_planes()},  // volume.cpp: 3-D, by the above
      {"ConvTranspose", &conv_planes()},
      // CUDA's: builds without CUDA choose among them as well, and run none.
      {"Conv", &cuda::conv_depthwise()},           // NHWC, groups == C
      {"Conv", &cuda::conv_stem()},                // NCHW to NHWC, 16 bit or TF32, few channels in
      {"Conv", &cuda::conv_grouped_mma()},         // NHWC, 16 bit, groups of few channels
      {"Conv", &cuda::conv_grouped_tf32()},        // NHWC, the same in TF32
      {"Conv", &cuda::conv_winograd_f4()},         // winograd.cpp: NHWC, 3x3 stride 1 by F(4x4,3x3)
      {"Conv", &cuda::conv_winograd_f2()},         // the same by F(2x2,3x3)
      {"Conv", &cuda::conv_winograd_f4_5x5()},     // the same for 5x5 by F(4x4,5x5)
      {"Conv", &cuda::conv_winograd_f2_5x5()},     // by F(2x2,5x5)
      {"Conv", &cuda::conv_winograd_f2_7x7()},     // for 7x7 by F(2x2,7x7)
      {"Conv", &cuda::conv_fft()},                 // NHWC, large filters, stride 1: FFTs of tiles
      {"Conv", &cuda::conv_few_pixels()},          // NHWC, 1x1 with few output pixels, by Gemm's kernel
      {"Conv", &cuda::conv_few_filters()},         // NHWC, 1x1 with up to eight filters
      {"Conv", &cuda::conv_thin_mma()},            // NHWC, 16 bit, 1x1 of few channels and filters
      {"Conv", &cuda::conv_wgmma_halo()},          // NHWC, stride 1, 16 bit and TF32: halo tiles in shared memory
      {"Conv", &cuda::conv_wgmma_gemm()},          // NHWC, 16 bit, Hopper's wgmma and TMA
      {"Conv", &cuda::conv_wgmma_tf32()},          // NHWC, the same in TF32
      {"Conv", &cuda::conv_implicit_gemm()},       // NHWC, GEMM that gathers windows from the input
      {"Conv", &cuda::conv_implicit_gemm_nchw()},  // implicit_gemm.cpp: the same in NCHW
      {"Conv", &cuda::conv_mma_gemm()},            // NHWC, the same on tensor cores: 16 bit, TF32
      {"Conv", &cuda::conv_im2col_gemm()},         // NCHW, im2col and cuBLAS
      {"Conv", &cuda::conv_direct_tile()},         // NHWC, few channels or odd filters, up to 11x11
      // The steps towards direct_tile (ladder/), each to be measured against the next.
      {"Conv", &cuda::conv_direct_tile_padded()},  // direct_tile on padded input
      {"Conv", &cuda::conv_direct_pixel()},        // one thread an output pixel
      {"Conv", &cuda::conv_direct_block()},        // direct_pixel.cpp: one thread a pixel and block of filters
      {"Conv", &cuda::conv_direct()},              // direct_reference.cpp: NCHW, any problem, computed filters too
      {"ConvTranspose", &cuda::conv_transpose_phases()},
      {"ConvTranspose", &cuda::conv_transpose_phases_nchw()},
      {"Conv", &cuda::conv_planes()},
      {"ConvTranspose", &cuda::conv_planes()},
      {"PreactivatedConv", &cuda::conv_wgmma_preactivated()},  // NHWC, 16 bit, sm_90
      {"PreactivatedConv", &cuda::conv_wgmma_layer_norm()},
      {"SeparableConv", &cuda::separable_conv()},  // NHWC, 16 bit and TF32, 3x3: one kernel
  };
  return rows;
}

}  // namespace lenslet
