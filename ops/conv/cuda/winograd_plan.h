#pragma once
// Tiling of a 3x3, 5x5 or 7x7 convolution for Winograd on CUDA, and its cost model. Plain C++: tested without CUDA.
//
// A tile is m x m outputs of one image, from alpha x alpha inputs; alpha = m + r - 1. With T tiles at a time:
//   V [alpha^2][T][c]   the transformed input, from x in NHWC
//   U [alpha^2][c][k]   the transformed filters
//   M [alpha^2][T][k]   = V U, the products, transformed to y in NHWC
// c and k are C and K rounded up as batched_gemm() requires, padded with zeros.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/cuda/batched_gemm.h"

namespace lenslet::cuda {

struct WinogradPlan {
  // Follows from the problem and m.
  int m = 0, r = 0, alpha2 = 0;
  int down = 0, across = 0;  ///< tiles of an image
  int count = 0;             ///< of all images
  int c = 0, k = 0;          ///< row lengths of V and M
  // The configuration.
  int chunk = 0;             ///< tiles of a chunk; V and M of a chunk are the workspace
  GemmTile tile{};           ///< of the GEMM
  bool wide_input = false;   ///< input transform: a thread takes winograd_width(m, r) channels, not one
  bool wide_output = false;  ///< the same of the output transform

  std::size_t u_floats() const { return floats_of(c) * static_cast<std::size_t>(k); }
  std::size_t v_floats() const { return floats_of(c) * static_cast<std::size_t>(chunk); }
  std::size_t product_floats() const { return floats_of(k) * static_cast<std::size_t>(chunk); }
  /// The GEMM of `tiles` tiles (<= chunk), without pointers.
  BatchedGemm gemm(int tiles) const { return {nullptr, nullptr, nullptr, tiles, k, c, alpha2}; }
  /// The configuration: "chunk=196 tile=64x64 wide_input=yes wide_output=no".
  std::string str() const;

 private:
  std::size_t floats_of(int channels) const {
    return static_cast<std::size_t>(alpha2) * static_cast<std::size_t>(channels);
  }
};

/// Channels of a thread of the wide transforms: the input takes 64 registers for alpha 4, 72 for 6, 128 for 8.
constexpr int winograd_width(int m, int r = 3) { return m + r == 5 ? 4 : 2; }

/// Why F(m x m, r x r) cannot do the problem, or nothing. m is 2 or 4 with r 3 or 5, 2 with r 7.
std::optional<std::string> refuse_winograd(const ConvProblem& problem, int m, int r = 3);

/// All configurations: 3x3 with the fewest chunks alone. These need refuse_winograd() to give nothing.
std::vector<WinogradPlan> winograd_tilings(const ConvProblem& problem, int m);
WinogradPlan plan_winograd(const ConvProblem& problem, int m, const DeviceProfile& device);
/// Reads str()'s configuration. Error(invalid_argument).
WinogradPlan read_winograd_plan(const ConvProblem& problem, int m, std::string_view config);

/// Microseconds of all launches.
double estimate_winograd_us(const ConvProblem& problem, const WinogradPlan& plan, const DeviceProfile& device);

/// Defined in winograd.cu.
std::unique_ptr<const BoundKernel> bind_winograd(const ConvProblem& problem, const WinogradPlan& plan);

}  // namespace lenslet::cuda
