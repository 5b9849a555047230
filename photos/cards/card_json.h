#pragma once
// Strict reader of JSON objects: every field is read by name and type, and unread fields are an error.

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lenslet::photos {

/// An object of a card. Messages name the field with its path: "FILE: normalize.mean has to be ...".
class CardObject {
 public:
  CardObject(const nlohmann::json& object, std::string path, std::string file);

  bool has(const std::string& field) const { return object_.contains(field); }
  /// Whether the field is null, which means unset. False if it is absent.
  bool is_null(const std::string& field);
  std::string text(const std::string& field, const std::string& otherwise);
  bool boolean(const std::string& field, bool otherwise);
  double number(const std::string& field, double otherwise);
  std::int64_t integer(const std::string& field, std::int64_t otherwise);
  std::vector<double> numbers(const std::string& field, std::vector<double> otherwise);
  /// The value paired with the field's text in `choices`.
  template <typename T>
  T choice(const std::string& field, T otherwise, std::initializer_list<std::pair<std::string_view, T>> choices);
  /// An empty object when the field is absent.
  CardObject object(const std::string& field);
  /// Empty when the field is absent.
  std::vector<CardObject> objects(const std::string& field);
  /// Throws for the first unread field.
  void refuse_unknown() const;
  /// Error(invalid_argument): "FILE: PATH.FIELD MESSAGE".
  [[noreturn]] void fail(const std::string& field, const std::string& message) const;

 private:
  const nlohmann::json* find(const std::string& field);

  nlohmann::json object_;
  std::string path_, file_;
  std::set<std::string> asked_;
};

template <typename T>
T CardObject::choice(const std::string& field, T otherwise,
                     std::initializer_list<std::pair<std::string_view, T>> choices) {
  if (!has(field)) return otherwise;
  const std::string value = text(field, {});
  std::string list;
  for (const auto& [name, result] : choices) {
    if (name == value) return result;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  fail(field, "is '" + value + "'; it has to be one of " + list);
}

}  // namespace lenslet::photos
