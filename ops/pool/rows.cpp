// The operators of pooling.

#include "ops/families.h"

namespace lenslet {

// pool_op.cpp, global_pool.cpp, col2im.cpp
OpParts max_pool(), average_pool(), global_pool(), col2im();

std::span<const OpRow> pool_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"MaxPool", "", 1, 1, 1, 1, 2, max_pool(), "1-D to 3-D; indices row-major only"},
      {"AveragePool", "", 7, 1, 1, 1, 1, average_pool(), "1-D to 3-D"},
      {"GlobalAveragePool", "", 1, 1, 1, 1, 1, global_pool()},
      {"GlobalMaxPool", "", 1, 1, 1, 1, 1, global_pool()},
      {"Col2Im", "", 18, 3, 3, 1, 1, col2im(), "images of 1 to 3 axes"},
  };
  return rows;
}

}  // namespace lenslet
