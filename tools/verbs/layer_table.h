#pragma once
// Tables of layers: one row each, totals by kind, one layer in full.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/check.h"
#include "tools/verbs/layer_times.h"
#include "tools/verbs/text_table.h"

namespace lenslet::tool {

struct LayerRow {
  LayerTime time;
  std::optional<LayerCheck> check;  ///< absent unless errors were requested
};

/// Of the medians.
double sum_us(std::span<const LayerRow> rows);

extern const std::span<const Column> layer_columns, total_columns, candidate_columns;
/// Prints the first `most` layers and all that failed their check, and the sum of all: layer_columns.
void print_table(std::span<const LayerRow> rows, std::size_t most, const TableOptions& options);
/// Time and limit by operator and algorithm: total_columns.
void print_totals(std::span<const LayerRow> rows, const TableOptions& options);
/// All that is known about one layer.
void print_in_full(const LayerRow& row, const std::string& device, const TableOptions& options);
/// The candidates of a step, a row each of candidate_columns.
void add_candidates(TextTable& table, const StepInfo& step, std::string_view indent);

/// One flat object.
nlohmann::ordered_json to_json(const LayerRow& row);
/// The same as comma-separated values (RFC 4180) with a header line; a layer's missing fields are empty.
void print_csv(std::span<const LayerRow> rows);

}  // namespace lenslet::tool
