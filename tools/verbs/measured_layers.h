#pragma once
// What `lenslet layers` and `lenslet report` measure.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/model.h"
#include "lenslet/timeline.h"
#include "tools/verbs/advice.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/layer_table.h"
#include "tools/verbs/model_inputs.h"

namespace lenslet::tool {

struct MeasuringOptions {
  std::string model;
  InputOptions inputs;
  double seconds = 1;
  int warmup = default_warmup;
  bool no_errors = false;
  PlanOptions plan;
  std::function<void(const PlanInfo&)> before_measuring = {};  ///< throws if the plan lacks what was asked for
};
/// --no-errors, --seconds, --warmup, --batch, --shape, --input, --random
void add_measuring_options(CLI::App& verb, MeasuringOptions& options);

struct MeasuredLayers {
  Model model;
  PlanInfo plan;
  std::int64_t batch = 1;
  std::optional<Peak> peak = {};
  std::optional<Quantiles> run_us = {};  ///< of whole runs
  std::vector<LayerRow> rows = {};       ///< in order of execution
  std::optional<Timeline> timeline = {};
  std::string disturbed = {};  ///< slowness.h
  RunFacts facts = {};
};

/// Loads the model; prints notes about the device and about refused algorithms on stderr. Runs without an observer take
/// a quarter of `seconds` besides. Measures up to three times while the machine has other work.
MeasuredLayers measure_layers(const MeasuringOptions& options);

/// The row of each step, by its number; -1 for steps without one.
std::vector<int> rows_of_steps(const MeasuredLayers& layers);

/// What `lenslet layers --json` prints, without the machine.
nlohmann::ordered_json to_json(const MeasuredLayers& layers);

}  // namespace lenslet::tool
