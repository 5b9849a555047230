#pragma once
// Writes JSON. Only the tools read it, with a library.

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace lenslet {

/// Members and elements in call order; commas are automatic.
class JsonWriter {
 public:
  std::string take() { return std::move(text_); }

  /// {"name": ...}: a member, or without a name an element, that is an object with what `members` writes.
  template <typename Members>
  void object(const Members& members) {
    nested('{', '}', members);
  }
  template <typename Members>
  void object(std::string_view name, const Members& members) {
    key(name);
    object(members);
  }
  template <typename Elements>
  void array(const Elements& elements) {
    nested('[', ']', elements);
  }
  template <typename Elements>
  void array(std::string_view name, const Elements& elements) {
    key(name);
    array(elements);
  }
  template <typename T>
  void member(std::string_view name, const T& value) {
    key(name);
    element(value);
  }

  void element(std::nullptr_t) { raw("null"); }
  void element(bool value) { raw(value ? "true" : "false"); }
  template <std::integral T>
  void element(T value) {
    raw(fmt::format("{}", value));
  }
  /// The shortest text that parses to the same number, with a point or an exponent.
  void element(double value) {
    if (!std::isfinite(value)) return element(nullptr);
    std::string digits = fmt::format("{}", value);
    if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
    raw(digits);
  }
  void element(std::string_view value);
  void element(const std::string& value) { element(std::string_view(value)); }
  void element(const char* value) { element(std::string_view(value)); }

 private:
  void comma() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  void raw(std::string_view value) {
    comma();
    text_ += value;
  }
  void key(std::string_view name) {
    element(name);
    text_ += ':';
    first_ = true;
  }
  template <typename Inside>
  void nested(char open, char close, const Inside& inside) {
    comma();
    text_ += open;
    first_ = true;
    inside();
    text_ += close;
    first_ = false;
  }

  std::string text_;
  bool first_ = true;  // no comma before what comes
};

}  // namespace lenslet
