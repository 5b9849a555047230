#pragma once
// What the three thread mappings of a direct convolution have in common: what they refuse, and what they state.

#include <optional>
#include <string>

#include "ops/conv/cpu/packed_filter.h"
#include "ops/conv/cuda/index_range.h"

namespace lenslet::cuda {

constexpr int max_kernel = 11, max_channels = 64;

inline std::optional<std::string> refuse_direct(const ConvProblem& p) {
  if (p.groups != 1) return "grouped filters";
  if (p.r > max_kernel || p.s > max_kernel) return "a filter larger than 11x11";
  if (p.c > max_channels) return "more than 64 input channels: a matrix product reuses them better";
  if (!fits_32_bits(p) || p.k > 0xffff || p.n * p.p * p.q > 0x7fffff00) return "a tensor beyond 32-bit offsets";
  return std::nullopt;
}

/// One accumulator takes all terms, and its rounding errors drift on inputs whose mean is not zero: up to 1.6e-5 of the
/// output's rms in waifu2x (64 channels, 3x3), where products that add up in parts stay below 9e-6.
inline double direct_tolerance(const ConvProblem& problem) { return 2 * packed_tolerance(problem); }

}  // namespace lenslet::cuda
