#include "photos/cards/card_json.h"

#include <cmath>

#include "lenslet/error.h"

namespace lenslet::photos {

CardObject::CardObject(const nlohmann::json& object, std::string path, std::string file)
    : object_(object), path_(std::move(path)), file_(std::move(file)) {
  if (!object_.is_object())
    throw Error(ErrorKind::invalid_argument,
                path_.empty() ? "the card has to be a JSON object" : path_ + " has to be an object", file_);
}

void CardObject::fail(const std::string& field, const std::string& message) const {
  throw Error(ErrorKind::invalid_argument, (path_.empty() ? field : path_ + "." + field) + " " + message, file_);
}

const nlohmann::json* CardObject::find(const std::string& field) {
  asked_.insert(field);
  const auto found = object_.find(field);
  return found == object_.end() ? nullptr : &*found;
}

bool CardObject::is_null(const std::string& field) {
  const auto* value = find(field);
  return value != nullptr && value->is_null();
}

std::string CardObject::text(const std::string& field, const std::string& otherwise) {
  const auto* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) fail(field, "has to be a string");
  return value->get<std::string>();
}

bool CardObject::boolean(const std::string& field, bool otherwise) {
  const auto* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail(field, "has to be true or false");
  return value->get<bool>();
}

double CardObject::number(const std::string& field, double otherwise) {
  const auto* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || !std::isfinite(value->get<double>())) fail(field, "has to be a number");
  return value->get<double>();
}

std::int64_t CardObject::integer(const std::string& field, std::int64_t otherwise) {
  const double value = number(field, static_cast<double>(otherwise));
  if (value != std::floor(value) || std::abs(value) > 1e9) fail(field, "has to be a whole number");
  return static_cast<std::int64_t>(value);
}

std::vector<double> CardObject::numbers(const std::string& field, std::vector<double> otherwise) {
  const auto* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_array()) fail(field, "has to be a list of numbers");
  std::vector<double> result;
  for (const auto& entry : *value) {
    if (!entry.is_number() || !std::isfinite(entry.get<double>())) fail(field, "has to be a list of numbers");
    result.push_back(entry.get<double>());
  }
  return result;
}

CardObject CardObject::object(const std::string& field) {
  const auto* value = find(field);
  const std::string path = path_.empty() ? field : path_ + "." + field;
  return {value == nullptr ? nlohmann::json::object() : *value, path, file_};
}

std::vector<CardObject> CardObject::objects(const std::string& field) {
  const auto* value = find(field);
  std::vector<CardObject> result;
  if (value == nullptr) return result;
  if (!value->is_array()) fail(field, "has to be a list of objects");
  const std::string path = path_.empty() ? field : path_ + "." + field;
  for (std::size_t i = 0; i < value->size(); ++i)
    result.emplace_back((*value)[i], path + "[" + std::to_string(i) + "]", file_);
  return result;
}

void CardObject::refuse_unknown() const {
  for (const auto& [field, value] : object_.items())
    if (asked_.count(field) == 0) fail(field, "is no field of a model card");
}

}  // namespace lenslet::photos
