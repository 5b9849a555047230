#include <fmt/format.h>

#include "ops/core/op.h"

namespace lenslet {

namespace {

[[noreturn]] void wrong_kind(std::string_view name, std::string_view wanted) {
  throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' must be {}", name, wanted));
}

}  // namespace

const AttributeValue* AttributeReader::find(std::string_view name) {
  for (std::size_t i = 0; i < attributes_.size(); ++i)
    if (attributes_[i].first == name) {
      used_[i] = true;
      return &attributes_[i].second;
    }
  return nullptr;
}

bool AttributeReader::has(std::string_view name) { return find(name) != nullptr; }

std::int64_t AttributeReader::integer(std::string_view name, std::int64_t fallback) {
  const AttributeValue* value = find(name);
  if (value == nullptr) return fallback;
  if (const auto* integer = std::get_if<std::int64_t>(value)) return *integer;
  wrong_kind(name, "an integer");
}

std::int64_t AttributeReader::required_integer(std::string_view name) {
  if (!has(name)) throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' is missing", name));
  return integer(name, 0);
}

double AttributeReader::real(std::string_view name, double fallback) {
  const AttributeValue* value = find(name);
  if (value == nullptr) return fallback;
  if (const auto* real = std::get_if<double>(value)) return *real;
  wrong_kind(name, "a float");
}

std::string AttributeReader::text(std::string_view name, std::string_view fallback) {
  const AttributeValue* value = find(name);
  if (value == nullptr) return std::string(fallback);
  if (const auto* text = std::get_if<std::string>(value)) return *text;
  wrong_kind(name, "a string");
}

std::vector<std::int64_t> AttributeReader::integers(std::string_view name) {
  const AttributeValue* value = find(name);
  if (value == nullptr) return {};
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(value)) return *integers;
  wrong_kind(name, "a list of integers");
}

std::vector<double> AttributeReader::reals(std::string_view name) {
  const AttributeValue* value = find(name);
  if (value == nullptr) return {};
  if (const auto* reals = std::get_if<std::vector<double>>(value)) return *reals;
  wrong_kind(name, "a list of floats");
}

std::optional<Tensor> AttributeReader::tensor(std::string_view name) {
  const AttributeValue* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* tensor = std::get_if<Tensor>(value)) return *tensor;
  wrong_kind(name, "a tensor");
}

void AttributeReader::ignore(std::string_view name) { find(name); }

void AttributeReader::finish() const {
  for (std::size_t i = 0; i < attributes_.size(); ++i)
    if (!used_[i])
      throw Error(ErrorKind::unsupported, fmt::format("attribute '{}' is not supported (its value: {})",
                                                      attributes_[i].first, to_string(AttributeList{attributes_[i]})));
}

}  // namespace lenslet
