#pragma once
// Layers as tables: one row each, totals by kind, one layer in full.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/check.h"
#include "tools/verbs/layer_times.h"

namespace lenslet::tool {

struct LayerRow {
  LayerTime time;
  std::optional<LayerCheck> check;  ///< absent when errors were not asked for
};

/// Prints all layers, their sum, and a legend of marks. Names longer than a column keep their end.
void print_table(std::span<const LayerRow> rows);
/// Time and floor by operator and algorithm.
void print_totals(std::span<const LayerRow> rows);
/// Everything that is known of one layer.
void print_in_full(const LayerRow& row, const std::string& device);
/// The candidates of a step, a line each; `width` columns for their names.
void print_candidates(const StepInfo& step, std::size_t width, const std::string& indent);

/// One flat object.
nlohmann::ordered_json to_json(const LayerRow& row);
/// The same as comma-separated values (RFC 4180), with a line of names; fields that a layer has not are empty.
void print_csv(std::span<const LayerRow> rows);

}  // namespace lenslet::tool
