#include "ops/sparse/clear.h"

#include <algorithm>
#include <cstring>

#include "ops/core/grain.h"

namespace lenslet {

void fill_with_none(std::int32_t* values, std::int64_t count, ThreadPool& pool) {
  pool.parallel_for(count, elementwise_grain, [values](std::int64_t begin, std::int64_t end, int) {
    std::memset(values + begin, 0xFF, static_cast<std::size_t>(end - begin) * sizeof(std::int32_t));
  });
}

void clear_rows(float* y, std::int64_t begin, std::int64_t end, std::int64_t columns, ThreadPool& pool) {
  pool.parallel_for((end - begin) * columns, elementwise_grain, [&](std::int64_t first, std::int64_t last, int) {
    std::fill(y + begin * columns + first, y + begin * columns + last, 0.0F);
  });
}

}  // namespace lenslet
