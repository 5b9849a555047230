#include "ops/sparse/site_fault.h"

#include <fmt/format.h>

namespace lenslet {

SiteFaultWords read_fault(std::span<const std::int32_t> words) {
  return {.kind = static_cast<SiteFault>(words[0]),
          .row = words[1],
          .other = words[2],
          .site = {words[3], words[4], words[5], words[6]},
          .count_low = words[7],
          .count_high = words[8]};
}

std::string site_fault_text(const SiteFaultWords& words, const SiteFaultContext& context) {
  const auto row = [&](const std::string& why) {
    return fmt::format("site {} {} {}", words.row, site_text(words.site, context.grid.dims, 0), why);
  };
  switch (words.kind) {
    case SiteFault::behind_empty:
      return row(fmt::format("comes after row {}, which holds no site", words.other));
    case SiteFault::outside:
      return row("lies outside " + context.grid.str());
    case SiteFault::twice:
      return row(words.other < 0 ? "occurs twice" : fmt::format("occurs twice: site {} is the same", words.other));
    case SiteFault::out_of_order:
      return row("comes after a larger one; SparseSort brings sites into their order");
    case SiteFault::sites:
      return count_text(words.count(), context.max_sites, "sites", "max_sites");
    case SiteFault::pairs:
      return count_text(words.count(), context.max_pairs, "pairs", "max_pairs");
    case SiteFault::output_sites:
      return count_text(words.count(), context.max_sites, "output sites", "max_sites");
    case SiteFault::no_rulebook:
      return fmt::format("the rulebook is none of {} taps", context.taps);
    case SiteFault::leads_elsewhere:
      return fmt::format("the rulebook leads from {} sites to {}; it holds at most {} and {}", words.row, words.other,
                         context.most_inputs, context.most_outputs);
    case SiteFault::bad_pairs:
      return "the rulebook has pairs that are out of order, or of sites that are not";
    case SiteFault::none:
      break;
  }
  return "sites are not as they have to be";
}

}  // namespace lenslet
