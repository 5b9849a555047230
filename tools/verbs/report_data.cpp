#include "tools/verbs/report_data.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "lenslet/error.h"

namespace lenslet::tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr int deepest = 32;  // dump() recurses

struct Member {
  const char* name;
  bool (*holds)(const Json& value);
  const char* what;
};
bool is_text(const Json& value) { return value.is_string(); }
bool is_amount(const Json& value) {
  return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= 1e18;  // sums stay finite
}
bool is_list(const Json& value) { return value.is_array(); }
constexpr Member of_run[] = {
    {"model", is_text, "a text"}, {"device", is_text, "a text"}, {"layers", is_list, "a list"}};
constexpr Member of_layer[] = {{"name", is_text, "a text"},
                               {"op", is_text, "a text"},
                               {"algorithm", is_text, "a text"},
                               {"ms", is_amount, "a number from 0 to 1e18"},
                               {"flops", is_amount, "a number from 0 to 1e18"},
                               {"bytes", is_amount, "a number from 0 to 1e18"}};

template <std::size_t count>
void check(const Json& object, const Member (&members)[count], const std::string& where, const std::string& file) {
  for (const Member& member : members) {
    const auto found = object.is_object() ? object.find(member.name) : object.end();
    if (!object.is_object() || found == object.end() || !member.holds(*found))
      throw Error(ErrorKind::invalid_argument, fmt::format("{}{} is not {}", where, member.name, member.what), file);
  }
}

}  // namespace

Json read_report_runs(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) throw Error(ErrorKind::io, "is a folder, not a file", file);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw Error(ErrorKind::io, "cannot be read", file);
  Json document;
  try {
    document = Json::parse(stream, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > deepest) throw Error(ErrorKind::invalid_argument, "its JSON is nested too deeply", file);
      return true;
    });
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::invalid_argument, fmt::format("is no JSON: {}", error.what()), file);
  }
  Json runs = Json::array();
  if (document.is_object() && document.contains("schema")) {
    if (document["schema"] != report_schema || document.value("version", Json()) != report_version)
      throw Error(ErrorKind::invalid_argument, fmt::format("is not '{}' of version {}", report_schema, report_version),
                  file);
    if (!document.contains("runs") || !document["runs"].is_array())
      throw Error(ErrorKind::invalid_argument, "runs is not a list", file);
    runs = std::move(document["runs"]);
  } else {
    runs.push_back(std::move(document));
  }
  for (const Json& run : runs) {
    check(run, of_run, "", file);
    for (std::size_t i = 0; i < run["layers"].size(); ++i)
      check(run["layers"][i], of_layer, fmt::format("layers[{}].", i), file);
  }
  return runs;
}

std::string embedded(const Json& data) {
  std::string text;
  for (const char c : data.dump(-1, ' ', true, Json::error_handler_t::replace)) {
    if (c == '<' || c == '>' || c == '&')  // in JSON these stand in strings only
      text += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      text += c;
  }
  return text;
}

}  // namespace lenslet::tool
