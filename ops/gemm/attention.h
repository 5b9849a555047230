#pragma once
// softmax(scale * Q K^T + bias) V of every head: the problem, as the pass that finds it states it and the kernels take
// it.

#include <cstdint>
#include <optional>
#include <vector>

namespace lenslet {

/// Where the rows of Q, K, V or Y lie within a tensor, in elements. The channels of one head and token are contiguous.
struct AttentionOperand {
  std::int64_t offset = 0;  ///< of batch 0, head 0, token 0
  std::int64_t batch = 0;   ///< from one of the N problems to the next
  std::int64_t head = 0;
  std::int64_t token = 0;
};

/// Heads with scales of their own: as many as are passed with a launch.
inline constexpr std::int64_t most_head_scales = 64;
inline constexpr double least_qk_norm_epsilon = 1e-30;  ///< its inverse is a float32

/// N problems of H heads each. Q [N,H,L,D], K [N,H,S,D], V [N,H,S,E], Y [N,H,L,E] lie where their operands say.
struct AttentionProblem {
  std::int64_t n = 1, heads = 1;
  std::int64_t queries = 1;     ///< L
  std::int64_t keys = 1;        ///< S
  std::int64_t head_size = 1;   ///< D
  std::int64_t value_size = 1;  ///< E
  AttentionOperand q = {}, k = {}, v = {}, y = {};
  double scale = 1;
  /// Y = relu(Q) (relu(K)^T V) / (relu(Q) sum of the rows of relu(K) + this) instead, without scale, bias and table:
  /// ReLU linear attention (Cai et al., "EfficientViT", 2023).
  std::optional<double> linear_epsilon = {};
  /// Scores are between channels: Y = V softmax(scale Q^T K)^T without bias and table. Q [N,H,D,L], K [N,H,D,S],
  /// V [N,H,E,S], Y [N,H,E,L] have D and E tokens and L or S channels (channel attention: Ding et al., "DaViT", 2022;
  /// cross-covariance attention: El-Nouby et al., "XCiT", 2021).
  bool between_channels = false;
  std::vector<double> head_scales = {};  ///< [H], times `scale`; empty: none
  /// Each row of Q and K, between channels each column, is divided by its L2 norm, or by this where that is smaller
  /// (cosine attention: Liu et al., "Swin Transformer V2", 2022). Nothing: Q and K as they are.
  std::optional<double> qk_norm_epsilon = {};
  /// The bias [bias_n, bias_heads, bias_queries, S], contiguous: problem i takes i % bias_n. bias_heads is 1 or H,
  /// bias_queries 1 or L. bias_n 0: there is none.
  std::int64_t bias_n = 0, bias_heads = 1, bias_queries = 1;
  /// With a table [rows_n, L] of int32 each of Q, K, V and Y is rows of tokens, `token` apart, and token t of problem i
  /// is row table[i % rows_n][t] + i / rows_n * rows_n * L of them. Windows lie apart in an image so. 0: no table.
  std::int64_t rows_n = 0;
};

}  // namespace lenslet
