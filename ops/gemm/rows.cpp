// Gemm and MatMul with the kernels that compute both, Einsum and Attention.

#include "ops/families.h"
#include "ops/gemm/einsum.h"
#include "ops/gemm/problem.h"

namespace lenslet {

OpParts gemm_op(), matmul_op(), fused_matmul(), einsum(), attention();

std::span<const OpRow> gemm_rows() {
  static const OpRow rows[] = {
      {"Gemm", "", 7, 2, 3, 1, 1, gemm_op()},
      {"MatMul", "", 1, 2, 2, 1, 1, matmul_op()},
      {"FusedMatMul", "com.microsoft", 1, 2, 2, 1, 1, fused_matmul(), "not transBatchA and transBatchB"},
      {"Einsum", "", 12, 1, EinsumWalk::most_operands, 1, 1, einsum(),
       "up to 4 operands; of float32 mostly Transpose, Reshape and MatMul (the pass expand_einsum)"},
      {"Attention", "", 23, 3, 7, 1, 4, attention(),
       "3-D and 4-D; a float attn_mask; no past, softcap or is_causal; as many heads of K and V as of Q"},
  };
  return rows;
}

std::span<const KernelRow> gemm_kernels() {
  static const KernelRow rows[] = {
      {"Gemm", &few_rows_product()},        {"Gemm", &packed_product()},        {"Gemm", &cuda_product()},
      {"MatMul", &few_rows_product()},      {"MatMul", &packed_product()},      {"MatMul", &cuda_product()},
      {"FusedMatMul", &few_rows_product()}, {"FusedMatMul", &packed_product()}, {"FusedMatMul", &cuda_product()},
  };
  return rows;
}

}  // namespace lenslet
