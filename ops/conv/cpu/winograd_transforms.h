#pragma once
// The data transforms of Winograd F(m x m, 3 x 3) for one tile, vectors over channels. m: 2, 4 or 6; alpha = m + 2.

#include <cstdint>

#include "ops/core/activation.h"

namespace lenslet {

/// V = B^T d B of one tile: v[(i * alpha + j) * stride + c] for all c < channels. pixels[i * alpha + j]: the channels
/// of the input at row i, column j of the tile (zeros outside of the image).
struct WinogradInputTile {
  const float* const* pixels = nullptr;
  std::int64_t channels = 0;
  float* v = nullptr;
  std::int64_t stride = 0;
};
void winograd_input(int m, const WinogradInputTile& tile);

/// y = activation(A^T M A + bias + residual) of one tile, M from products[(i * alpha + j) * stride + k]; `rows` x
/// `columns` of the m x m outputs exist. `y` and `residual` point to its first pixel; strides in floats: `line`,
/// `pixel`. With `max_pool` y gets the maxima of whole 2x2 windows; then no residual, and a clamp as activation.
struct WinogradOutputTile {
  const float* products = nullptr;
  std::int64_t stride = 0;
  std::int64_t channels = 0;
  std::int64_t rows = 0, columns = 0;
  const float* bias = nullptr;      ///< or null
  const float* residual = nullptr;  ///< or null; may be y
  float* y = nullptr;
  std::int64_t line = 0, pixel = 0;
  bool max_pool = false;
};
void winograd_output(int m, const WinogradOutputTile& tile, const Activation& activation);

}  // namespace lenslet
