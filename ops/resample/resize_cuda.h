#pragma once
// Launcher of Resize.

#include <cstddef>
#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet::cuda {

struct Context;

/// A tap of an output position. A tap of weight 0 is skipped, whatever its `index`.
struct ResizeTap {
  static constexpr std::int32_t beyond = -1;  ///< as index of the first tap: the element is the extrapolation

  std::int32_t index = 0;
  float weight = 0;
};

/// Adjacent output rows that are computed together.
inline constexpr int resize_group = 4;

/// [outer, rows_in, columns_in, inner] to [outer, rows_out, columns_out, inner].
struct ResizeLaunch {
  std::int64_t outer = 1, rows_in = 1, rows_out = 1, columns_in = 1, columns_out = 1, inner = 1;
  int taps = 2;                  ///< of each element, those of weight 0 included: 1, 2, 4 or any larger number
  std::int64_t group_lines = 1;  ///< from the first to the last input row of any group's taps
  bool reaches_beyond = false;   ///< some element is the extrapolation

  std::size_t table_size() const { return static_cast<std::size_t>(rows_out + columns_out) * std::size_t(taps); }
};

/// y[o,r,c,i] = sum over taps a of row r and b of column c of a.weight * b.weight * x[o, a.index, b.index, i]. `table`:
/// `taps` per row, then per column; rows_in and columns_in are below 2^31. Elements are f32, or f16 or bf16, rounded
/// once; with one tap, which copies, any type. Device addresses that do not overlap.
void resize(const Context& context, const ResizeLaunch& launch, DType dtype, const ResizeTap* table,
            float extrapolation, const void* x, void* y);

}  // namespace lenslet::cuda
