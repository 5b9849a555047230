// The operators of pooling.

#include "ops/families.h"

namespace lenslet {

// pool_op.cpp, global_pool.cpp, max_unpool.cpp, col2im.cpp
OpParts max_pool(), average_pool(), lp_pool(), global_average_pool(), global_pool(), max_unpool(), col2im();

std::span<const OpRow> pool_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"MaxPool", "", 1, 1, 1, 1, 2, max_pool(), "1-D to 3-D"},
      {"AveragePool", "", 7, 1, 1, 1, 1, average_pool(), "1-D to 3-D"},
      {"LpPool", "", 2, 1, 1, 1, 1, lp_pool(), "1-D to 3-D"},
      {"GlobalAveragePool", "", 1, 1, 1, 1, 1, global_average_pool()},
      {"GlobalMaxPool", "", 1, 1, 1, 1, 1, global_pool()},
      {"GlobalLpPool", "", 2, 1, 1, 1, 1, global_pool(), "p 1 and 2"},
      {"MaxUnpool", "", 9, 2, 3, 1, 1, max_unpool(), "1-D to 3-D"},
      {"Col2Im", "", 18, 3, 3, 1, 1, col2im(), "images of 1 to 3 axes"},
  };
  return rows;
}

}  // namespace lenslet
