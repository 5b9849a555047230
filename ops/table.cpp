// All operators and kernels: the families' rows, in the order of the support matrix (docs/ops.md).

#include <vector>

#include "ops/families.h"

namespace lenslet {
namespace {

template <typename Row>
std::vector<Row> joined(std::initializer_list<std::span<const Row>> families) {
  std::vector<Row> rows;
  for (const auto family : families) rows.insert(rows.end(), family.begin(), family.end());
  return rows;
}

}  // namespace

std::span<const OpRow> op_table() {
  static const std::vector<OpRow> rows =
      joined<OpRow>({conv_rows(), gemm_rows(), quantized_rows(), pool_rows(), normalization_rows(), recurrent_rows(),
                     elementwise_rows(), reduce_rows(), movement_rows(), resample_rows(), shape_rows(), sparse_rows()});
  return rows;
}

std::span<const KernelRow> family_kernels() {
  static const std::vector<KernelRow> rows = joined<KernelRow>({conv_kernels(), gemm_kernels(), sparse_kernels()});
  return rows;
}

const OpRow* find_op(std::string_view name, std::string_view domain) {
  for (const OpRow& row : op_table())
    if (row.name == name && row.domain == domain) return &row;
  return nullptr;
}

}  // namespace lenslet
