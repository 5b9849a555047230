#pragma once
// Launcher of Softmax and LogSoftmax.

#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// x and y [outer, length, inner], device addresses; along the middle y = exp(x - max) / sum(exp(x - max)), with `log`
/// the logarithm of that. y may be x. Sums of over 32 elements a thread are taken in double.
void softmax(const Context& context, const float* x, float* y, std::int64_t outer, std::int64_t length,
             std::int64_t inner, bool log);

}  // namespace lenslet::cuda
