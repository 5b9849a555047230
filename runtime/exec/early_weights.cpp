#include "runtime/exec/early_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

namespace lenslet {

std::vector<EarlyWeights> early_weights(std::span<const StepWeights> steps, std::size_t weight_bytes,
                                        const DeviceProfile& device) {
  // ResNet-50's 51 MB (fp16) and 102 MB (TF32) gained nothing on an H100, or lost 2 %.
  if (device.kind != DeviceKind::cuda || !device.clusters || weight_bytes <= 2 * device.l2_bytes) return {};
  std::vector<EarlyWeights> found;
  // The last two steps with weights. Prefetches at the graph's root cost 1 to 9 us.
  std::optional<std::size_t> behind, beside;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepWeights& weights = steps[i];
    if (weights.bytes == 0) continue;
    // A graph branch costs about as much as prefetching fewer bytes gains.
    constexpr std::size_t least = 4'000'000;
    const bool wanted =
        (weights.waits && weights.bytes >= least) || (weights.product && weights.bytes > device.l2_bytes);
    // If a step streams more than L2 holds, prefetched bytes are evicted before they are read.
    if (wanted && behind && steps[*beside].bytes <= device.l2_bytes)
      found.push_back({i, *behind, *beside, std::min(weights.bytes, device.l2_bytes / 2)});
    behind = beside;
    beside = i;
  }
  return found;
}

void describe_early_weights(std::span<const EarlyWeights> early_weights, std::span<StepInfo> steps) {
  for (const EarlyWeights& early : early_weights) {
    std::string& reason = steps[early.step].reason;
    constexpr double mb = 1e6;
    reason += fmt::format("{}{:.1f} MB of its weights come to L2 while {} runs", reason.empty() ? "" : "; ",
                          static_cast<double>(early.bytes) / mb, steps[early.beside].name);
  }
}

}  // namespace lenslet
