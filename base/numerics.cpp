#include "lenslet/numerics.h"

#include <fmt/format.h>

#include "base/boundary.h"
#include "lenslet/error.h"

namespace lenslet {
namespace {

struct Named {
  std::string_view name;
  Numerics numerics;
};
constexpr Named known[] = {
    {"fp32", {}},
    {"tf32", {.multiply = Numerics::Multiply::tf32}},
    {"fp16", {.storage = DType::f16, .multiply = Numerics::Multiply::fp16}},
    {"bf16", {.storage = DType::bf16, .multiply = Numerics::Multiply::bf16}},
};

}  // namespace

std::string_view to_string(const Numerics& numerics) noexcept {
  for (const Named& row : known)
    if (row.numerics == numerics) return row.name;
  return "?";
}

Numerics parse_numerics(std::string_view name) {
  return with_errors([&] {
    std::string names;
    for (const Named& row : known) {
      if (row.name == name) return row.numerics;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
    }
    throw Error(ErrorKind::invalid_argument, fmt::format("unknown precision '{}'; known: {}", name, names));
  });
}

}  // namespace lenslet
