#pragma once
// Launcher of instance normalization.

#include <cstddef>
#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// Device memory that instance_norm needs for x [planes, area].
std::size_t instance_norm_workspace_bytes(std::int64_t planes, std::int64_t area);

/// y = (x - mean) / sqrt(variance + epsilon) * scale[c] + bias[c], mean and variance of each plane of x [N*C, area],
/// taken in double; plane i belongs to channel i % channels. Device addresses; y may be x.
void instance_norm(const Context& context, float epsilon, std::int64_t planes, std::int64_t channels, std::int64_t area,
                   const float* scale, const float* bias, const float* x, float* y, std::byte* workspace);

}  // namespace lenslet::cuda
