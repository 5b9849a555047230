#include "ops/gemm/attention_bias.h"

#include "ops/core/tilings.h"

namespace lenslet {
namespace {

constexpr std::int64_t tile_elems = bias_tile_queries * bias_tile_keys;

}  // namespace

std::optional<std::size_t> bias_tiles_bytes(const AttentionProblem& p) {
  constexpr std::size_t most = std::size_t{64} << 20;
  if (p.bias_n == 0 || p.bias_queries == 1) return std::nullopt;
  const std::int64_t tiles =
      p.bias_n * p.bias_heads * ceil_div(p.queries, bias_tile_queries) * ceil_div(p.keys, bias_tile_keys);
  const auto bytes = static_cast<std::size_t>(tiles * tile_elems) * sizeof(std::uint16_t);
  return bytes <= most ? std::optional(bytes) : std::nullopt;
}

void write_bias_tiles(const AttentionProblem& p, std::span<const std::uint16_t> bias, std::uint16_t minus_infinity,
                      std::span<std::byte> to) {
  auto* next = reinterpret_cast<std::uint16_t*>(to.data());
  for (std::int64_t plane = 0; plane < p.bias_n * p.bias_heads; ++plane)
    for (std::int64_t first = 0; first < p.queries; first += bias_tile_queries)
      for (std::int64_t from = 0; from < p.keys; from += bias_tile_keys)
        for (std::int64_t i = 0; i < tile_elems; ++i) {
          // Of a lane 2 eights of keys x 2 queries x 2 keys.
          const std::int64_t part = i / 256, lane = i / 8 % 32, value = i % 8;
          const std::int64_t query = first + lane / 4 + value / 2 % 2 * 8;
          const std::int64_t key = from + (part * 2 + value / 4) * 8 + lane % 4 * 2 + value % 2;
          *next++ = key >= p.keys        ? minus_infinity
                    : query >= p.queries ? std::uint16_t{0}
                                         : bias[static_cast<std::size_t>((plane * p.queries + query) * p.keys + key)];
        }
}

}  // namespace lenslet
