#include "ops/core/activation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lenslet/error.h"
#include "ops/core/scalar_math.h"

namespace lenslet {

namespace {

struct Row {
  std::string_view name;
  int parameters;
};
#define LENSLET_ROW(NAME, PARAMETERS, ...) {#NAME, PARAMETERS},
constexpr Row rows[] = {LENSLET_ACTIVATIONS(LENSLET_ROW)};  // by Kind
#undef LENSLET_ROW

}  // namespace

std::string_view to_string(Activation::Kind kind) noexcept { return rows[static_cast<std::size_t>(kind)].name; }

Activation::Kind parse_activation_kind(std::string_view name) {
  const auto found = std::find_if(std::begin(rows), std::end(rows), [&](const Row& row) { return row.name == name; });
  if (found == std::end(rows)) throw Error(ErrorKind::invalid_model, fmt::format("no activation is called '{}'", name));
  return static_cast<Activation::Kind>(found - std::begin(rows));
}

std::string to_string(const Activation& activation) {
  const Row& row = rows[static_cast<std::size_t>(activation.kind)];
  if (row.parameters == 0) return std::string(row.name);
  if (row.parameters == 1) return fmt::format("{}({})", row.name, activation.alpha);
  return fmt::format("{}({},{})", row.name, activation.alpha, activation.beta);
}

double apply(const Activation& activation, double x) {
  return activated(activation.kind, x, activation.alpha, activation.beta);
}

}  // namespace lenslet
