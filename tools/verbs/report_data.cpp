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
constexpr Member of_timeline[] = {{"ms", is_amount, "a number from 0 to 1e18"},
                                  {"undisturbed_ms", is_amount, "a number from 0 to 1e18"},
                                  {"lanes", is_list, "a list"}};
constexpr Member of_lane[] = {{"name", is_text, "a text"}, {"spans", is_list, "a list"}};
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

// A span is [layer or -1, kind, begin, end].
void check_timeline(const Json& timeline, std::size_t layers, const std::string& file) {
  check(timeline, of_timeline, "timeline.", file);
  for (std::size_t i = 0; i < timeline["lanes"].size(); ++i) {
    const std::string where = fmt::format("timeline.lanes[{}].", i);
    const Json& lane = timeline["lanes"][i];
    check(lane, of_lane, where, file);
    double before = 0;
    for (std::size_t k = 0; k < lane["spans"].size(); ++k) {
      const Json& span = lane["spans"][k];
      if (!span.is_array() || span.size() != 4 || !span[0].is_number_integer() || span[0].get<double>() < -1 ||
          span[0].get<double>() >= static_cast<double>(layers) || !span[1].is_string() || !is_amount(span[2]) ||
          !is_amount(span[3]) || span[2] < before || span[3] < span[2])
        throw Error(ErrorKind::invalid_argument,
                    fmt::format("{}spans[{}] is not [layer, kind, begin, end], after the one before", where, k), file);
      before = span[3].get<double>();
    }
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
    if (const auto timeline = run.find("timeline"); timeline != run.end())
      check_timeline(*timeline, run["layers"].size(), file);
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
