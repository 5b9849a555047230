#pragma once
// Prints rows of lenslet/check.h.

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "lenslet/check.h"

namespace lenslet::tool {

/// The error as a JSON number, or "infinite".
nlohmann::json number_or_infinite(double error);
/// One flat object; `row` is not a refusal.
nlohmann::json to_json(const LayerCheck& row);
/// Advice about layers that exceed float16's range, with the first one's name; empty if there are none.
std::string range_advice(std::span<const LayerCheck> layers);

}  // namespace lenslet::tool
