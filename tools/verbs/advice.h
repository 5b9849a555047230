#pragma once
// What a user could do about the time of layers: sentences that follow from what was measured and planned.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/timeline.h"
#include "tools/verbs/layer_table.h"
#include "tools/verbs/layer_times.h"

namespace lenslet::tool {

/// Of the run that was measured.
struct RunFacts {
  std::string model = "MODEL";  ///< its file, for commands: a shell word
  bool on_cpu = true;
  bool float32 = true;         ///< values are float32 unless the file says otherwise
  bool bf16_products = false;  ///< the CPU's kernels have instructions for them
  bool flushes_denormals = false;
  std::int64_t batch = 1;
  double run_us = 0;  ///< of a whole run
  int threads = 1;
};
RunFacts facts_of(const std::string& model, const PlanInfo& plan, const PlanOptions& options, double run_us);

/// Sets LayerTime::advice of layers with at least 1% of the time; it stays empty where the facts support none.
void advise(std::span<LayerTime> layers, const RunFacts& run);

/// A sentence, and the layers that it is about: their indices, slowest first. None: about the run.
struct Advice {
  std::string text;
  std::vector<std::size_t> layers = {};
  double us = 0, lost_us = 0;  ///< of these layers: sums of their medians, and of what lies above their floors
};
/// About threads that wait for most of a run, then LayerTime::advice, that of most time first.
std::vector<Advice> advice_on(std::span<const LayerRow> rows, const RunFacts& run,
                              const std::optional<Timeline>& timeline);

nlohmann::ordered_json to_json(const std::vector<Advice>& advice);
/// Prints it below a table, in lines of `width` columns.
void print_advice(const std::vector<Advice>& advice, std::span<const LayerRow> rows, std::size_t width);

}  // namespace lenslet::tool
