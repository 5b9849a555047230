#pragma once
// Configurations of kernels as text: "tile=128x64 split_k=4 vectors=yes".

#include <cstdint>
#include <string>
#include <string_view>

namespace lenslet {

/// "name=value name=value", in the order in which they were added.
class ConfigWriter {
 public:
  ConfigWriter& add(std::string_view name, std::int64_t value);
  ConfigWriter& add(std::string_view name, bool value);
  ConfigWriter& add(std::string_view name, std::string_view value);
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

/// Reads what ConfigWriter wrote, in the same order. Throws Error(invalid_argument) that quotes the text.
class ConfigReader {
 public:
  explicit ConfigReader(std::string_view text) : text_(text), rest_(text) {}
  /// In [least, most].
  std::int64_t integer(std::string_view name, std::int64_t least = 0, std::int64_t most = INT64_MAX);
  bool flag(std::string_view name);
  std::string_view word(std::string_view name);
  /// True at the end of the text: optional values that would follow are absent.
  bool done() const { return rest_.empty(); }
  /// Throws unless the whole text was read.
  void finish() const;
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  std::string_view text_, rest_;
};

}  // namespace lenslet
