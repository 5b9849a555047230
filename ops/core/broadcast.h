#pragma once
// NumPy broadcasting without materialised operands: shapes and layouts are walked in the output's memory order.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/format.h"
#include "base/thread_pool.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// The common shape, aligned at the last dimension. Error(invalid_model) names both when there is none.
Shape broadcast_shapes(const Shape& a, const Shape& b);

/// A loop nest over an output, innermost loop last, with the operands' element strides (0 where one is repeated). Loops
/// of length 1 are dropped and adjacent loops merged where every operand steps evenly: equal shapes in one layout
/// become a single loop, a per-channel operand two or three.
struct BroadcastLoops {
  static constexpr int max_operands = 6;

  /// Operand 0 should be the output itself, so that its strides give the store offsets. An operand of lower rank is
  /// row-major and aligned at the last dimension.
  struct Operand {
    const Shape* shape = nullptr;
    Format layout = formats::nchw;
  };
  BroadcastLoops(const Shape& output, Format output_layout, std::span<const Operand> operands);

  int rank = 0;  ///< >= 1
  int operands = 0;
  std::array<std::int64_t, Shape::max_rank> dims{};
  std::array<std::array<std::int64_t, Shape::max_rank>, max_operands> strides{};  ///< [operand][loop]

  std::int64_t inner() const { return dims[static_cast<std::size_t>(rank - 1)]; }
  std::int64_t inner_stride(int operand) const {
    return strides[static_cast<std::size_t>(operand)][static_cast<std::size_t>(rank - 1)];
  }
  /// Product of all loops but the innermost; 0 when any loop is empty.
  std::int64_t rows() const;
};

/// Calls body(offsets, count) for runs along the innermost loop: `offsets` holds each operand's element offset at the
/// start of the run; operand i steps by inner_stride(i). Long rows are split, short ones are grouped.
template <typename Body>
void for_each_run(const BroadcastLoops& loops, ThreadPool& pool, std::int64_t grain_elems, const Body& body) {
  const std::int64_t rows = loops.rows(), inner = loops.inner();
  if (rows == 0 || inner == 0) return;
  const std::int64_t cut = std::min(inner, grain_elems);
  const std::int64_t cuts = (inner + cut - 1) / cut;
  const std::int64_t grain = std::max<std::int64_t>(1, grain_elems / cut);
  pool.parallel_for(rows * cuts, grain, [&](std::int64_t begin, std::int64_t end, int) {
    std::array<std::int64_t, Shape::max_rank> index{};
    std::array<std::int64_t, BroadcastLoops::max_operands> row{}, at{};
    std::int64_t rest = begin / cuts, piece = begin % cuts;
    for (int d = loops.rank - 2; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      index[i] = rest % loops.dims[i];
      rest /= loops.dims[i];
      for (std::size_t o = 0; o < static_cast<std::size_t>(loops.operands); ++o)
        row[o] += index[i] * loops.strides[o][i];
    }
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t first = piece * cut;
      for (int o = 0; o < loops.operands; ++o)
        at[static_cast<std::size_t>(o)] = row[static_cast<std::size_t>(o)] + first * loops.inner_stride(o);
      body(at, std::min(cut, inner - first));
      if (++piece < cuts) continue;
      piece = 0;
      for (int d = loops.rank - 2; d >= 0; --d) {
        const auto i = static_cast<std::size_t>(d);
        const bool carry = ++index[i] == loops.dims[i];
        for (std::size_t o = 0; o < static_cast<std::size_t>(loops.operands); ++o)
          row[o] += carry ? -(index[i] - 1) * loops.strides[o][i] : loops.strides[o][i];
        if (!carry) break;
        index[i] = 0;
      }
    }
  });
}

}  // namespace lenslet
