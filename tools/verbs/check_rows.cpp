#include "tools/verbs/check_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lenslet::tool {

nlohmann::json number_or_infinite(double error) {
  return std::isfinite(error) ? nlohmann::json(error) : nlohmann::json("infinite");
}

nlohmann::json to_json(const LayerCheck& row) {
  nlohmann::json json = {{"name", row.name}, {"passed", row.passed()}};
  const bool layer = row.kind == LayerCheck::Kind::layer;
  if (layer) json["op"] = row.op;
  if (layer && !row.algorithm.empty()) json["algorithm"] = row.algorithm;
  if (!layer && !row.forced.empty()) json["conv_algorithm"] = row.forced;
  if (layer || row.skipped.empty()) json["tolerance"] = row.tolerance;
  if (!row.skipped.empty())
    json["skipped"] = row.skipped;
  else
    json["error"] = number_or_infinite(row.error);
  if (row.not_finite > 0) json["not_finite"] = row.not_finite;
  if (row.made_nan > 0) json["made_nan"] = row.made_nan;
  if (row.beyond_range > 0) json["beyond_range"] = row.beyond_range;
  return json;
}

std::string range_advice(std::span<const LayerCheck> layers) {
  const auto leaves = [](const LayerCheck& layer) { return layer.beyond_range > 0; };
  const auto first = std::ranges::find_if(layers, leaves);
  if (first == layers.end()) return {};
  return fmt::format("{} of them leave the range of float16, first {} (up to {:.3g}): bf16 has that of float32",
                     std::ranges::count_if(layers, leaves), first->name, first->largest);
}

}  // namespace lenslet::tool
