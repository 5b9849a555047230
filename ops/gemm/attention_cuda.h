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

/// Channels of a head that the kernels of 16 bits, and those of float32 in tiles of keys, take.
inline constexpr std::int64_t most_mma_channels = 128;

/// Whether the kernels of 16 bits and those in tiles of keys count a token's stride in 31 bits and hold its channels.
inline bool on_tensor_cores(const AttentionProblem& p) {
  return std::max(p.head_size, p.value_size) <= most_mma_channels &&
         std::max(p.k.token, p.v.token) <= std::numeric_limits<std::int32_t>::max();
}

/// Whether rows of an operand are packs of `pack` elements at multiples of it.
inline bool in_packs(const AttentionOperand& operand, std::int64_t channels, std::int64_t pack) {
  return channels > 0 && channels % pack == 0 && operand.offset % pack == 0 && operand.batch % pack == 0 &&
         operand.head % pack == 0 && operand.token % pack == 0;
}

/// Whether the kernels of float32 that take keys in tiles, and alone multiply in TF32, hold its channels, count the
/// biases of a warp's queries in 31 bits and read rows 16 bytes at a time.
inline bool fits_attention_tiles(const AttentionProblem& p) {
  constexpr std::int64_t most_keys = std::numeric_limits<std::int32_t>::max() / 16;
  return on_tensor_cores(p) && p.keys > 0 && p.keys <= most_keys && in_packs(p.q, p.head_size, 4) &&
         in_packs(p.k, p.head_size, 4) && in_packs(p.v, p.value_size, 4) && in_packs(p.y, p.value_size, 4);
}

/// `data` may be null. `tiles`: prepared (ops/gemm/attention_bias.h), of 16 bits.
struct AttentionBias {
  const void* data = nullptr;
  bool tiles = false;
};

/// What attention's kernels may use.
struct AttentionMeans {
  bool wgmma = false;  ///< whether the device has it (has_wgmma.h)
  bool tf32 = false;   ///< float32: operands of products are rounded to TF32 where fits_attention_tiles()
};

/// Device addresses of `dtype`: float32, float16 or bfloat16. Sums, scores and powers are in float32; of 16 bits,
/// powers are rounded before they are multiplied by V, and y once. `rows` (AttentionProblem::rows_n) may be null.
void attention(const Context& context, const AttentionProblem& problem, const AttentionMeans& means, DType dtype,
               const void* q, const void* k, const void* v, const AttentionBias& bias, const std::int32_t* rows,
               void* y);

/// Channels of a head, of Q and K or of V, where linear_epsilon is set: as many as a block sums up in registers.
inline constexpr std::int64_t most_linear_attention_channels = 32;

/// The same for a problem with linear_epsilon. Y is rounded once.
void linear_attention(const Context& context, const AttentionProblem& problem, DType dtype, const void* q,
                      const void* k, const void* v, void* y);

/// Channels of a head where scores are between channels: the most rows of scores that a block holds.
inline constexpr std::int64_t most_scored_channels = 64;

/// Scores between channels are padded to [width][width].
inline int channel_attention_width(const AttentionProblem& p) { return std::max(p.queries, p.keys) <= 32 ? 32 : 64; }
/// Blocks that share the tokens of a head: at most six a multiprocessor in all, which run at once up to 32 channels (of
/// more, two do). With one it needs no workspace.
inline std::int64_t channel_attention_blocks(const AttentionProblem& p) {
  constexpr std::int64_t multiprocessors = 132, at_once = 6 * multiprocessors;  // of an H200; the same on all devices
  const std::int64_t tokens = std::max(p.head_size, p.value_size), heads = std::max<std::int64_t>(p.n * p.heads, 1);
  if (tokens <= 256 || heads >= 2 * multiprocessors) return 1;
  return std::min((tokens + 63) / 64, at_once / heads);
}
/// Floats of a block's sums: scores, and the squares of the columns of Q and K.
inline std::int64_t channel_attention_sums(int width) { return std::int64_t{width} * (width + 2); }
/// Bytes: sums of all blocks, then the softmax of scores.
inline std::size_t channel_attention_workspace(const AttentionProblem& p) {
  const std::int64_t blocks = channel_attention_blocks(p), width = channel_attention_width(p);
  if (blocks == 1) return 0;
  const std::int64_t floats = blocks * channel_attention_sums(static_cast<int>(width)) + width * width;
  return static_cast<std::size_t>(p.n * p.heads * floats) * sizeof(float);
}

/// The same for a problem with between_channels. Sums and scores are in float32; of 16 bits, the softmax is rounded
/// before it is multiplied by V, and y once.
void channel_attention(const Context& context, const AttentionProblem& problem, DType dtype, const void* q,
                       const void* k, const void* v, void* y, void* workspace);

}  // namespace lenslet::cuda
