#pragma once
// Fills the rows behind the last site (docs/sparse.md), in all threads.

#include <cstdint>

#include "base/thread_pool.h"

namespace lenslet {

/// Fills ints [0, count) with -1.
void fill_with_none(std::int32_t* values, std::int64_t count, ThreadPool& pool);
/// Zeros rows [begin, end) of `columns` floats.
void clear_rows(float* y, std::int64_t begin, std::int64_t end, std::int64_t columns, ThreadPool& pool);

}  // namespace lenslet
