#pragma once
// Tables of layers: one row each, totals by kind, one layer in full.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/check.h"
#include "tools/verbs/layer_times.h"

namespace lenslet::tool {

struct LayerRow {
  LayerTime time;
  std::optional<LayerCheck> check;  ///< absent unless errors were requested
};

/// Prints all layers, their sum, and a legend of marks. Names longer than a column keep their end.
void print_table(std::span<const LayerRow> rows);
/// Time and floor by operator and algorithm.
void print_totals(std::span<const LayerRow> rows);
/// All that is known about one layer.
void print_in_full(const LayerRow& row, const std::string& device);
/// The candidates of a step, one line each; names are padded to `width` columns.
void print_candidates(const StepInfo& step, std::size_t width, const std::string& indent);

/// One flat object.
nlohmann::ordered_json to_json(const LayerRow& row);
/// The same as comma-separated values (RFC 4180) with a header line; a layer's missing fields are empty.
void print_csv(std::span<const LayerRow> rows);

}  // namespace lenslet::tool
