#pragma once
// The planner of kernels with several tile configurations ("tilings"): takes the best, sorts them, finds one by its
// text. A tiling's str() is its configuration.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/config_text.h"

namespace lenslet {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The tiling with the least us(tiling), the first of equals; nothing where there is none.
template <typename Tiling, typename Us>
std::optional<Tiling> best_tiling(const std::vector<Tiling>& tilings, const Us& us) {
  std::optional<Tiling> best;
  double least = std::numeric_limits<double>::infinity();
  for (const Tiling& tiling : tilings) {
    const double here = us(tiling);
    if (here >= least) continue;
    least = here;
    best = tiling;
  }
  return best;
}

/// All of them, the best first.
template <typename Tiling, typename Us>
std::vector<Tiling> by_estimate(std::vector<Tiling> tilings, const Us& us) {
  std::stable_sort(tilings.begin(), tilings.end(), [&](const Tiling& a, const Tiling& b) { return us(a) < us(b); });
  return tilings;
}

/// The tiling with this text. Error(invalid_argument) that names those that exist.
template <typename Tiling>
Tiling find_tiling(const std::vector<Tiling>& tilings, std::string_view config) {
  for (const Tiling& tiling : tilings)
    if (tiling.str() == config) return tiling;
  std::string known;
  for (const Tiling& tiling : tilings) known += (known.empty() ? "" : ", ") + tiling.str();
  ConfigReader(config).refuse("no kernel has this configuration for this problem; there are: " + known);
}

}  // namespace lenslet
