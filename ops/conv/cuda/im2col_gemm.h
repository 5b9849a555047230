#pragma once
// Chunks of im2col_gemm, and its launches. Plain C++.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

namespace im2col_gemm_sizes {

/// Columns of one chunk: enough for each product to fill the device, and not far above L2 (50 MiB on Hopper).
inline constexpr std::int64_t chunk_bytes = std::int64_t{64} << 20;

inline bool input_is_columns(const ConvProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && !p.padded();
}

inline std::int64_t column_row_bytes(const ConvProblem& p) {
  return p.c * p.r * p.s * p.q * static_cast<std::int64_t>(sizeof(float));
}

/// A chunk: whole images, or output rows of one image. Unused where nothing is unfolded.
struct Chunks {
  std::int64_t images, rows;  ///< images > 1 only with all rows
};

inline Chunks chunks_of(const ConvProblem& p) {
  const std::int64_t row_bytes = column_row_bytes(p);
  return {.images = std::max<std::int64_t>(1, std::min(chunk_bytes / (row_bytes * p.p), p.n)),
          .rows = std::max<std::int64_t>(1, std::min(chunk_bytes / row_bytes, p.p))};
}

/// Workspace size.
inline std::size_t column_bytes(const ConvProblem& p, const Chunks& chunks) {
  return input_is_columns(p) ? 0 : static_cast<std::size_t>(column_row_bytes(p) * chunks.rows * chunks.images);
}

}  // namespace im2col_gemm_sizes

std::unique_ptr<const BoundKernel> bind_im2col_gemm(const ConvProblem& problem, const im2col_gemm_sizes::Chunks& chunks,
                                                    Numerics::Multiply multiply);

}  // namespace lenslet::cuda
