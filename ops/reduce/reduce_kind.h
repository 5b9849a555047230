#pragma once
// The Reduce family, by what is accumulated and how it ends.

#include <cstdint>

namespace lenslet {

enum class ReduceKind : std::uint8_t { sum, mean, max, min, prod, sum_square, l1, l2, log_sum, log_sum_exp };

}  // namespace lenslet
