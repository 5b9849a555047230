#include "tools/verbs/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace lenslet::tool {

namespace {

// Levenshtein's distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({diagonal + 1, row[j] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view mistyped, std::span<const std::string> names) {
  constexpr std::size_t near = 2;
  const std::string* best = nullptr;
  std::size_t least = near + 1;
  for (const std::string& name : names)  // less than half of a short name is wrong
    if (const std::size_t d = distance(mistyped.substr(0, 64), name);
        d < least && 2 * d < std::min(mistyped.size(), name.size())) {
      least = d;
      best = &name;
    }
  return best == nullptr ? "" : fmt::format(" (did you mean {}?)", *best);
}

}  // namespace lenslet::tool
