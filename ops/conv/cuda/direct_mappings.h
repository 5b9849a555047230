#pragma once
// Shared by direct_tile and the kernels of ladder/: refusals, tolerance and the filter format.

#include <algorithm>
#include <optional>
#include <string>

#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {

inline constexpr int max_kernel = 11, max_channels = 64;

inline std::optional<std::string> refuse_direct(const ConvProblem& p) {
  if (p.groups != 1) return "grouped filters";
  if (p.r > max_kernel || p.s > max_kernel) return "a filter larger than 11x11";
  if (p.c > max_channels) return "more than 64 input channels: a matrix product reuses them better";
  if (!fits_32_bits(p) || p.k > 0xffff || p.n * p.p * p.q > 0x7fffff00) return "a tensor beyond 32-bit offsets";
  return std::nullopt;
}

/// A single accumulator drifts on inputs whose mean is not zero: up to 1.6e-5 of the output's rms in waifu2x (64
/// channels, 3x3), where partial sums stay below 9e-6.
inline double direct_tolerance(const ConvProblem& p) { return 2 * sum_tolerance(p.c * p.r * p.s); }

/// Floats of a group of filters (one thread's) for one c, r and s: two 16-byte loads, however many filters the group
/// has.
inline constexpr int group_floats = 8;

/// Groups of `size` that cover `count`.
constexpr std::int64_t group_count(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

constexpr std::int64_t grouped_floats(const ConvProblem& p, std::int64_t filters_a_group) {
  return p.c * p.r * p.s * group_count(p.k, filters_a_group) * group_floats;
}

/// [C][R][S][groups][8]: filter g * filters_a_group + i is element i of group g; unused elements are zero.
inline void group_filters(const ConvProblem& p, const ConvFilter& filter, std::int64_t filters_a_group,
                          std::span<float> to) {
  const std::int64_t groups = group_count(p.k, filters_a_group);
  std::fill(to.begin(), to.end(), 0.0F);
  for (std::int64_t k = 0; k < p.k; ++k)
    for (std::int64_t i = 0; i < filter.gemm_k; ++i)
      to[static_cast<std::size_t>((i * groups + k / filters_a_group) * group_floats + k % filters_a_group)] =
          filter.weight(k, i);
}

}  // namespace lenslet::cuda
