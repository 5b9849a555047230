#pragma once
// One step of a run against its double-precision reference, fed with the step's own inputs.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "lenslet/runner.h"

namespace lenslet::tool {

struct LayerCheck {
  std::string name, op, algorithm;
  double error = 0;  ///< largest oracle::error_at(), of all outputs
  double tolerance = 0;
  std::size_t not_finite = 0;    ///< elements that are infinite or NaN by the reference
  std::size_t made_nan = 0;      ///< elements that the algorithm made NaN for their neighbours' sake, see Judge
  bool large_integers = false;   ///< it was left unchecked for these
  std::size_t beyond_range = 0;  ///< elements whose value is finite, but infinite in the type they are stored in
  double largest = 0;            ///< the largest magnitude of these
  std::string skipped;           ///< why it was not checked; empty: it was
  bool passed() const { return !skipped.empty() || (error <= tolerance && beyond_range == 0); }
};

/// What the observer of a run with PlanOptions::keep_all_values saw. As slow as the reference.
LayerCheck check_layer(const LayerEvent& event);

inline constexpr const char* large_integers = "integers beyond 2^53, which the reference rounds";
/// "ok", "EXCEEDED", and what else is to be said; why it was not checked.
std::string verdict(const LayerCheck& check);
/// What is to be done about layers that leave the range of float16, the first by name; empty if none does.
std::string range_advice(std::span<const LayerCheck> layers);
/// An error that is no number in JSON: "infinite".
nlohmann::json number_or_infinite(double error);

}  // namespace lenslet::tool
