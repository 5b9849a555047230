#pragma once
// A known bias of 16-bit attention, prepared in the order in which a warp's lanes begin their sums with it: of 16
// queries and 64 keys each lane has four times 16 bytes, [4][32 lanes][8 values]. Rows of 49 biases (windows of 7x7)
// are otherwise 64 loads of two bytes. Plain C++.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/gemm/attention.h"

namespace lenslet {

inline constexpr int bias_tile_queries = 16, bias_tile_keys = 64;

/// Bytes of [bias_n][bias_heads][queries / 16][keys / 64] such tiles, rounded up; nothing where a bias is the same for
/// all queries, or so large that the prepared one would double the memory of a network.
std::optional<std::size_t> bias_tiles_bytes(const AttentionProblem& problem);
/// `bias`: [bias_n, bias_heads, bias_queries, keys] of 16 bits. Keys that are not there get `minus_infinity`, queries
/// zeros.
void write_bias_tiles(const AttentionProblem& problem, std::span<const std::uint16_t> bias,
                      std::uint16_t minus_infinity, std::span<std::byte> to);

}  // namespace lenslet
