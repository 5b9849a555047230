// Prepared biases of attention: each lane's values, where a warp's accumulators have them (base/cuda/mma.cuh).
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "ops/gemm/attention_bias.h"

namespace lenslet::test {

TEST_CASE("attention/bias_tiles") {
  AttentionProblem p;
  p.bias_n = 2, p.bias_heads = 3, p.queries = p.bias_queries = 37, p.keys = 131;
  const std::int64_t tiles_q = 3, tiles_k = 3, quads = 4, lanes = 32, values = 8;
  std::vector<std::uint16_t> bias(static_cast<std::size_t>(6 * p.queries * p.keys));
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<std::uint16_t>(i + 1);
  const std::size_t bytes = bias_tiles_bytes(p).value();
  REQUIRE(bytes == static_cast<std::size_t>(6 * tiles_q * tiles_k * quads * lanes * values * 2));
  std::vector<std::byte> to(bytes);
  constexpr std::uint16_t minus_infinity = 0xFC00;
  write_bias_tiles(p, bias, minus_infinity, to);
  // Every value of a 16x64 tile in accumulator order: 8 eights of keys, of a lane two rows and two columns of each.
  std::size_t at = 0;
  for (std::int64_t plane = 0; plane < 6; ++plane)
    for (std::int64_t tile_q = 0; tile_q < tiles_q; ++tile_q)
      for (std::int64_t tile_k = 0; tile_k < tiles_k; ++tile_k)
        for (std::int64_t quad = 0; quad < quads; ++quad)
          for (std::int64_t lane = 0; lane < lanes; ++lane)
            for (std::int64_t eight = quad * 2; eight < quad * 2 + 2; ++eight)
              for (std::int64_t half = 0; half < 2; ++half)
                for (std::int64_t i = 0; i < 2; ++i, at += 2) {
                  const std::int64_t query = tile_q * 16 + lane / 4 + half * 8;
                  const std::int64_t key = tile_k * 64 + eight * 8 + lane % 4 * 2 + i;
                  const std::uint16_t wanted =
                      key >= p.keys        ? minus_infinity
                      : query >= p.queries ? std::uint16_t{0}
                                           : bias[static_cast<std::size_t>((plane * p.queries + query) * p.keys + key)];
                  std::uint16_t found = 0;
                  std::memcpy(&found, to.data() + at, sizeof found);
                  if (found != wanted)
                    CHECK_MESSAGE(found == wanted, "plane ", plane, ", query ", query, ", key ", key);
                }
  CHECK(at == bytes);
  // The same for all queries, and too large.
  p.bias_queries = 1;
  CHECK(!bias_tiles_bytes(p));
  p.bias_queries = p.queries = p.keys = 8192;
  CHECK(!bias_tiles_bytes(p));
}

}  // namespace lenslet::test
