#pragma once
// A bitmap of cells that are sites, with prefix counts that number them.

#include <cstddef>
#include <cstdint>

#include "base/cuda/host_device.h"
#include "ops/sparse/cuda/workspace.h"

namespace lenslet::cuda {

struct Context;

/// Device addresses. Cell bits, 64 per word, zero behind the last cell; per word the number of bits before it in its
/// chunk; per chunk the number before the chunk.
struct Cells {
  static constexpr std::int64_t cells_of_word = 64, words_of_chunk = 1024;

  std::int64_t words = 0, chunk_count = 0;
  std::uint64_t* bits = nullptr;
  std::uint32_t *before = nullptr, *chunks = nullptr;

  Cells(std::int64_t cells, Parts& parts)
      : words((cells + cells_of_word - 1) / cells_of_word),
        chunk_count((words + words_of_chunk - 1) / words_of_chunk),
        bits(parts.take<std::uint64_t>(words)),
        before(parts.take<std::uint32_t>(words)),
        chunks(parts.take<std::uint32_t>(chunk_count)) {}

  /// The number of sites before `cell`. Requires number_cells() and make_totals() of the chunks.
  LENSLET_HOST_DEVICE std::uint32_t number(std::int64_t cell) const {
    const std::int64_t word = cell / cells_of_word;
    const std::uint64_t below = bits[word] & ((std::uint64_t{1} << cell % cells_of_word) - 1);
#if defined(__CUDA_ARCH__)
    const auto in_word = static_cast<std::uint32_t>(__popcll(below));
#else
    const auto in_word = static_cast<std::uint32_t>(__builtin_popcountll(below));
#endif
    return chunks[word / words_of_chunk] + before[word] + in_word;
  }
};

/// Computes `before` and `chunks` from the bits; chunks hold their own counts at first.
void number_cells(const Context& context, const Cells& cells);

}  // namespace lenslet::cuda
