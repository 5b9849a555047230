#include "ops/core/config_text.h"

#include <fmt/format.h>

#include <charconv>

#include "lenslet/error.h"

namespace lenslet {

namespace {

/// Names of before 0.1.0, which are read until 0.2.
struct FormerName {
  std::string_view now, before;
};
constexpr FormerName former_names[] = {{"split_k", "slices"}, {"padding", "room"}, {"kernel", "way"}};

bool begins_with(std::string_view text, std::string_view name) {
  return text.starts_with(name) && text.substr(name.size(), 1) == "=";
}

}  // namespace

ConfigWriter& ConfigWriter::add(std::string_view name, std::string_view value) {
  text_ += fmt::format("{}{}={}", text_.empty() ? "" : " ", name, value);
  return *this;
}
ConfigWriter& ConfigWriter::add(std::string_view name, std::int64_t value) { return add(name, fmt::to_string(value)); }
ConfigWriter& ConfigWriter::add(std::string_view name, bool value) {
  return add(name, std::string_view(value ? "yes" : "no"));
}

std::string_view ConfigReader::word(std::string_view name) {
  std::string_view written = name;
  for (const FormerName& former : former_names)
    if (former.now == name && begins_with(rest_, former.before)) written = former.before;
  if (!begins_with(rest_, written)) refuse(fmt::format("'{}=' expected before '{}'", name, rest_));
  rest_.remove_prefix(written.size() + 1);
  const std::string_view value = rest_.substr(0, rest_.find(' '));
  rest_.remove_prefix(value.size());
  // Skips the blank between two values; a trailing one stays, and finish() refuses it.
  if (rest_.size() > 1) rest_.remove_prefix(1);
  return value;
}

std::int64_t ConfigReader::integer(std::string_view name, std::int64_t least, std::int64_t most) {
  const std::string_view text = word(name);
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < least || value > most)
    refuse(fmt::format("{} is '{}', a number from {} to {} expected", name, text, least, most));
  return value;
}

bool ConfigReader::flag(std::string_view name) {
  const std::string_view text = word(name);
  if (text != "yes" && text != "no") refuse(fmt::format("{} is '{}', yes or no expected", name, text));
  return text == "yes";
}

void ConfigReader::finish() const {
  if (!rest_.empty()) refuse(fmt::format("nothing expected where '{}' stands", rest_));
}

void ConfigReader::refuse(std::string_view why) const {
  throw Error(ErrorKind::invalid_argument, fmt::format("configuration '{}': {}", text_, why));
}

}  // namespace lenslet
