#include "models/opset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lenslet/error.h"
#include "models/limits.h"

namespace lenslet {

namespace {

constexpr std::int64_t upgradable_opset = limits::min_opset - 1;

// Operators whose definition of opset 1 still holds in limits::max_opset, apart from types added (ONNX's changelog).
// The official test models of such operators import opset 1, as that is the version that they are of.
constexpr std::array<std::string_view, 4> unchanged_since_1 = {"GlobalAveragePool", "GlobalMaxPool", "Not", "Softplus"};

std::int64_t take_integer(AttributeList& attributes, std::string_view name, std::int64_t fallback) {
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [name](const auto& entry) { return entry.first == name; });
  if (found == attributes.end()) return fallback;
  const auto* value = std::get_if<std::int64_t>(&found->second);
  if (value == nullptr) throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' must be an integer", name));
  const std::int64_t taken = *value;
  attributes.erase(found);
  return taken;
}

bool has(const AttributeList& attributes, std::string_view name) {
  return std::any_of(attributes.begin(), attributes.end(), [name](const auto& entry) { return entry.first == name; });
}

template <std::size_t N>
bool is_one_of(std::string_view op, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

// ONNX's changelog of opset 7: these operators changed. AveragePool only gained an attribute.
constexpr std::array<std::string_view, 12> broadcasting = {"Add", "Sub",   "Mul",     "Div",  "Pow", "And",
                                                           "Or",  "Equal", "Greater", "Less", "Xor", "Gemm"};
constexpr std::array<std::string_view, 2> with_training_mode = {"BatchNormalization", "Dropout"};
constexpr std::array<std::string_view, 5> meaning_something_else = {"PRelu", "Upsample", "LSTM", "GRU", "RNN"};

}  // namespace

std::string_view canonical_domain(std::string_view domain) noexcept {
  return domain == "ai.onnx" ? std::string_view() : domain;
}

std::string_view domain_name(std::string_view domain) noexcept { return domain.empty() ? "ai.onnx" : domain; }

Opsets::Opsets(const OnnxImports& imports) {
  for (const auto& [domain, version] : imports) {
    const auto [entry, inserted] = versions_.emplace(canonical_domain(domain), version);
    if (!inserted && entry->second != version)
      throw Error(ErrorKind::invalid_model, fmt::format("imports versions {} and {} of {}", entry->second, version,
                                                        domain_name(canonical_domain(domain))));
    if (version < 1)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("imports version {} of {}", version, domain_name(canonical_domain(domain))));
  }
}

std::int64_t Opsets::version(std::string_view domain, std::string_view op_type) const {
  const auto found = versions_.find(domain);
  if (found == versions_.end())
    throw Error(ErrorKind::invalid_model, fmt::format("the model imports no opset of {}", domain_name(domain)));
  const std::int64_t version = found->second;
  if (domain.empty() && version < upgradable_opset && is_one_of(op_type, unchanged_since_1)) return limits::min_opset;
  if (domain.empty() && (version < upgradable_opset || version > limits::max_opset))
    throw Error(ErrorKind::unsupported, fmt::format("opset {} of ai.onnx; supported are {} to {}", version,
                                                    limits::min_opset, limits::max_opset));
  return version;
}

void upgrade_from_opset_6(std::string_view op_type, AttributeList& attributes) {
  if (is_one_of(op_type, meaning_something_else))
    throw Error(ErrorKind::unsupported, fmt::format("{} of opset 6 has another meaning than of opset 7", op_type));
  if (is_one_of(op_type, with_training_mode) && take_integer(attributes, "is_test", 0) == 0)
    throw Error(ErrorKind::unsupported, "attribute 'is_test' is 0: the node is in training mode");
  if (is_one_of(op_type, broadcasting)) {
    // Without an axis the second operand is aligned at the end, as opset 7 does it always.
    if (take_integer(attributes, "broadcast", 0) != 0 && has(attributes, "axis"))
      throw Error(ErrorKind::unsupported, "attribute 'axis' of an opset 6 broadcast is not supported");
    take_integer(attributes, "axis", 0);
  }
}

}  // namespace lenslet
