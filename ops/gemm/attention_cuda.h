#pragma once
// Attention on the device.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lenslet/tensor.h"
#include "ops/gemm/attention.h"

namespace lenslet::cuda {

struct Context;

/// Channels of a head, of Q and K or of V: as many as a warp's registers hold.
inline constexpr std::int64_t most_attention_channels = 256;

/// Channels of a head that the kernels of 16 bits take.
inline constexpr std::int64_t most_mma_channels = 128;

/// Whether the kernels of 16 bits count a token's stride in 31 bits and hold its channels.
inline bool on_tensor_cores(const AttentionProblem& p) {
  return std::max(p.head_size, p.value_size) <= most_mma_channels &&
         std::max(p.k.token, p.v.token) <= std::numeric_limits<std::int32_t>::max();
}

/// `data` may be null. `tiles`: prepared (ops/gemm/attention_bias.h), of 16 bits.
struct AttentionBias {
  const void* data = nullptr;
  bool tiles = false;
};

/// Device addresses of `dtype`: float32, float16 or bfloat16. Sums, scores and powers are in float32; of 16 bits,
/// powers are rounded before they are multiplied by V, and y once. `rows` (AttentionProblem::rows_n) may be null.
/// `wgmma`: whether the device has it (has_wgmma.h).
void attention(const Context& context, const AttentionProblem& problem, bool wgmma, DType dtype, const void* q,
               const void* k, const void* v, const AttentionBias& bias, const std::int32_t* rows, void* y);

/// Channels of a head, of Q and K or of V, where linear_epsilon is set: as many as a block sums up in registers.
inline constexpr std::int64_t most_linear_attention_channels = 32;

/// The same for a problem with linear_epsilon. Y is rounded once.
void linear_attention(const Context& context, const AttentionProblem& problem, DType dtype, const void* q,
                      const void* k, const void* v, void* y);

}  // namespace lenslet::cuda
