// Conv, and the algorithms that compute it.

#include "ops/conv/cpu/algorithms.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/families.h"

namespace lenslet {

std::span<const OpRow> conv_rows() {
  static const OpRow rows[] = {{"Conv", "", 1, 2, 3, 1, 1, conv(), "1-D and 2-D"}};
  return rows;
}

std::span<const KernelRow> conv_kernels() {
  // Specialised first; `direct` takes everything and stays last. At equal cost the earlier one is chosen.
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> list;
    for (const ConvAlgorithm* cpu : {&conv_depthwise(), &conv_winograd_f4(), &conv_winograd_f6(), &conv_winograd_f2(),
                                     &conv_im2col(), &conv_direct_packed(), &conv_direct()})
      list.push_back({"Conv", cpu});
    if constexpr (cuda_built)
      for (const ConvAlgorithm* on_gpu :
           {&cuda::conv_depthwise(), &cuda::conv_winograd_f4(), &cuda::conv_winograd_f2(), &cuda::conv_implicit_gemm(),
            &cuda::conv_implicit_gemm_nchw(), &cuda::conv_im2col_gemm(), &cuda::conv_direct_tile(),
            &cuda::conv_direct_tile_padded(), &cuda::conv_direct_pixel(), &cuda::conv_direct_block(),
            &cuda::conv_direct()})
        list.push_back({"Conv", on_gpu});
    return list;
  }();
  return rows;
}

}  // namespace lenslet
