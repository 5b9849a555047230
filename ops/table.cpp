// All operators and kernels: the families' rows, in the order of the support matrix (docs/ops.md).

#include <vector>

#include "ops/core/built_families.h"
#include "ops/core/conv_algorithms.h"
#include "ops/families.h"

namespace lenslet {
namespace {

template <typename Row>
void add(std::vector<Row>& rows, std::span<const Row> family) {
  rows.insert(rows.end(), family.begin(), family.end());
}

}  // namespace

std::span<const OpRow> op_table() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> all;
    if constexpr (built("conv")) add(all, conv_rows());
    if constexpr (built("gemm")) add(all, gemm_rows());
    if constexpr (built("quantized")) add(all, quantized_rows());
    if constexpr (built("pool")) add(all, pool_rows());
    if constexpr (built("normalization")) add(all, normalization_rows());
    if constexpr (built("recurrent")) add(all, recurrent_rows());
    if constexpr (built("elementwise")) add(all, elementwise_rows());
    if constexpr (built("reduce")) add(all, reduce_rows());
    if constexpr (built("movement")) add(all, movement_rows());
    if constexpr (built("resample")) add(all, resample_rows());
    if constexpr (built("shape")) add(all, shape_rows());
    if constexpr (built("sparse")) add(all, sparse_rows());
    return all;
  }();
  return rows;
}

std::span<const KernelRow> family_kernels() {
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> all;
    if constexpr (built("conv")) add(all, conv_kernels());
    if constexpr (built("gemm")) add(all, gemm_kernels());
    if constexpr (built("sparse")) add(all, sparse_kernels());
    return all;
  }();
  return rows;
}

std::vector<const Kernel*> conv_algorithms(DeviceKind device) {
  std::vector<const Kernel*> all;
  for (const char* const op : {"Conv", "SparseConv"}) add(all, kernels_of(op, device));
  return all;
}

const OpRow* find_op(std::string_view name, std::string_view domain) {
  for (const OpRow& row : op_table())
    if (row.name == name && row.domain == domain) return &row;
  return nullptr;
}

}  // namespace lenslet
