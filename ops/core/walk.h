#pragma once
// Element offsets of a broadcast operand, for a kernel that walks its output in memory order. Plain C++: made on the
// host and passed to the kernel by value.

#include <array>
#include <cstdint>

#include "base/cuda/fast_divider.h"
#include "lenslet/tensor.h"
#include "ops/core/broadcast.h"

namespace lenslet::cuda {

/// Adjacent output elements per thread: one 16-byte access of floats, or of 16-bit elements where all operands are.
inline constexpr int pack_elems = 4, half_pack_elems = 8;

/// Maps indices of an output of `rank` loops, innermost last and contiguous, to offsets of one operand.
struct Walk {
  enum class Form : std::uint8_t {
    whole,   ///< element i belongs to the output's element i
    single,  ///< one element for all
    packs,   ///< a pack of the output needs as many neighbours, aligned as a pack
    splats,  ///< a pack of the output needs one element
    each,    ///< every element has to be found by itself
  };
  Form form = Form::single;
  int rank = 1;
  FastDivider dims[Shape::max_rank];            // of the outermost loop: not needed
  std::int64_t strides[Shape::max_rank] = {0};  // in elements

  /// Offset of the operand's element for output element `index` < 2^31.
  LENSLET_HOST_DEVICE std::int64_t offset(std::uint32_t index) const {
    std::int64_t at = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
    for (int d = rank - 1; d > 0; --d) {
      const std::uint32_t outer = dims[d].divide(index);
      at += static_cast<std::int64_t>(index - outer * dims[d].divisor()) * strides[d];
      index = outer;
    }
    return at + static_cast<std::int64_t>(index) * strides[0];
  }
};

/// The walk of `operand` in `loops`, whose operand 0 is the output, by packs of `pack` elements. `packs_aligned`: the
/// operand's base address has a pack's alignment. At most 2^31 - 1 elements.
Walk make_walk(const BroadcastLoops& loops, int operand, bool packs_aligned, int pack = pack_elems);

/// A contiguous part of an output that one kernel can index with 32 bits.
struct Piece {
  BroadcastLoops loops;
  std::array<std::int64_t, BroadcastLoops::max_operands> offsets{};  ///< element of each operand where it begins
  std::int64_t elems = 0;
};

/// Calls f(piece) for pieces of at most `max_elems` elements that cover `loops`; never when these are empty.
template <typename F>
void for_each_piece(const BroadcastLoops& loops, std::int64_t max_elems, const F& f) {
  const std::int64_t elems = loops.rows() * loops.inner();
  if (elems == 0) return;
  const auto cut = [&](const auto& self, const Piece& piece) -> void {
    if (piece.elems <= max_elems) return f(piece);
    std::size_t d = 0;
    while (piece.loops.dims[d] == 1) ++d;
    // A multiple of 64 keeps all pieces of a long row aligned like the first.
    const std::int64_t dim = piece.loops.dims[d];
    const std::int64_t first = dim > 128 ? dim / 2 / 64 * 64 : dim / 2;
    Piece part = piece;
    part.elems = piece.elems / dim * first;
    part.loops.dims[d] = first;
    self(self, part);
    part.elems = piece.elems - part.elems;
    part.loops.dims[d] = dim - first;
    for (std::size_t o = 0; o < part.offsets.size(); ++o) part.offsets[o] += first * part.loops.strides[o][d];
    self(self, part);
  };
  cut(cut, Piece{loops, {}, elems});
}

}  // namespace lenslet::cuda
