// The operators on sparse values, each in the file of its name, and SparseConv's kernels.

#include "ops/families.h"
#include "ops/sparse/cuda/sparse_conv_cuda.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet {

OpParts sparse_voxelize(), sparse_sort(), sparse_rulebook(), sparse_conv(), sparse_max_pool(), sparse_to_dense(),
    sparse_from_dense();

std::span<const OpRow> sparse_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"SparseVoxelize", own, 1, 1, 1, 2, 2, sparse_voxelize(), "points of x, y, z and more columns: their mean"},
      {"SparseSort", own, 1, 2, 2, 2, 2, sparse_sort(), "2-D and 3-D, as all of them: [sparse.md](sparse.md)"},
      {"SparseRulebook", own, 1, 1, 1, 1, 2, sparse_rulebook(), "kernels to 5 an axis"},
      {"SparseConv", own, 1, 3, 5, 1, 1, sparse_conv(), "submanifold, regular, transposed, inverse"},
      {"SparseMaxPool", own, 1, 3, 3, 1, 1, sparse_max_pool()},
      {"SparseToDense", own, 1, 2, 2, 1, 1, sparse_to_dense()},
      {"SparseFromDense", own, 1, 1, 1, 2, 2, sparse_from_dense()},
  };
  return rows;
}

std::span<const KernelRow> sparse_kernels() {
  // The reference comes last. Ties go to the earlier kernel.
  static const KernelRow rows[] = {
      {"SparseConv", &sparse_conv_gathered_tiles()},       {"SparseConv", &sparse_conv_gather_scatter()},
      {"SparseConv", &cuda::sparse_conv_neighbour_mma()},  {"SparseConv", &cuda::sparse_conv_neighbour_tiles()},
      {"SparseConv", &cuda::sparse_conv_gathered_tiles()}, {"SparseConv", &cuda::sparse_conv_gather_scatter()},
  };
  return rows;
}

}  // namespace lenslet
