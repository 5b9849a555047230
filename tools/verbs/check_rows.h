#pragma once
// Output of rows of lenslet/check.h by verbs.

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "lenslet/check.h"

namespace lenslet::tool {

/// The error as a JSON number, or "infinite".
nlohmann::json number_or_infinite(double error);
/// One flat object of a row that is no refusal.
nlohmann::json to_json(const LayerCheck& row);
/// What is to be done about layers that leave the range of float16, the first by name; empty if none does.
std::string range_advice(std::span<const LayerCheck> layers);

}  // namespace lenslet::tool
